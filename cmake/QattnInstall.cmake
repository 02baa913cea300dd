# cmake --install: headers, libraries, command, CMake and pkg-config files. Components: runtime (the
# shared library), development, command.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Where an installed command finds the shared library, if it uses it.
if(QATTN_PREFERRED STREQUAL "shared")
  set(CMAKE_INSTALL_RPATH $ORIGIN/../${CMAKE_INSTALL_LIBDIR})
endif()

set(QATTN_CONFIG_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/qattn)
install(DIRECTORY include/qattn DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT development)

# An export set for each library: whoever uses one needs nothing of what the other needs.
foreach(kind IN ITEMS static shared)
  string(TOUPPER ${kind} option)
  if(NOT QATTN_BUILD_${option})
    continue()
  endif()
  install(TARGETS qattn_${kind} EXPORT qattn_${kind}_targets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development)
  install(EXPORT qattn_${kind}_targets NAMESPACE qattn:: FILE qattn-${kind}-targets.cmake
    DESTINATION ${QATTN_CONFIG_DIR} COMPONENT development)
endforeach()

# The CUDA runtime that the static library needs, so that no CUDA toolkit is needed to link it.
if(QATTN_WITH_CUDA AND QATTN_BUILD_STATIC)
  get_target_property(cudart_path CUDA::cudart_static IMPORTED_LOCATION)
  if(NOT cudart_path)
    set(cudart_path ${CUDA_cudart_static_LIBRARY})
  endif()
  install(FILES ${cudart_path} DESTINATION ${CMAKE_INSTALL_LIBDIR}/qattn
          RENAME libcudart_static.a COMPONENT development)
endif()

configure_package_config_file(cmake/qattn-config.cmake.in qattn-config.cmake
  INSTALL_DESTINATION ${QATTN_CONFIG_DIR} PATH_VARS CMAKE_INSTALL_LIBDIR)
# Structs of the C++ API may grow with minor versions.
write_basic_package_version_file(qattn-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/qattn-config.cmake
              ${PROJECT_BINARY_DIR}/qattn-config-version.cmake
  DESTINATION ${QATTN_CONFIG_DIR} COMPONENT development)
include(package/QattnPkgConfig)
