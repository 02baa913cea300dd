# cmake --install: headers, library, command, package configuration.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_target_property(library_type qattn_library TYPE)
set(QATTN_LIBRARY_IS_STATIC OFF)
if(library_type STREQUAL "STATIC_LIBRARY")
  set(QATTN_LIBRARY_IS_STATIC ON)
endif()

install(DIRECTORY include/qattn DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS qattn_library EXPORT qattn_targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT qattn_targets NAMESPACE qattn:: FILE qattn-targets.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/qattn)

# A static library leaves its private libraries to the consumer: OpenMP and threads are found there,
# the CUDA runtime is installed beside it, so that no CUDA toolkit is needed to link.
set(QATTN_BUNDLED_CUDART)
if(QATTN_WITH_CUDA AND QATTN_LIBRARY_IS_STATIC)
  set(QATTN_BUNDLED_CUDART libcudart_static.a)
  get_target_property(cudart_path CUDA::cudart_static IMPORTED_LOCATION)
  if(NOT cudart_path)
    set(cudart_path ${CUDA_cudart_static_LIBRARY})
  endif()
  install(FILES ${cudart_path} DESTINATION ${CMAKE_INSTALL_LIBDIR}/qattn
          RENAME ${QATTN_BUNDLED_CUDART})
endif()
configure_package_config_file(cmake/qattn-config.cmake.in qattn-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/qattn
  PATH_VARS CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(qattn-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/qattn-config.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/qattn-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/qattn)
