# qattn.pc, and qattn-static.pc, which names the archive: beside a shared library, -lqattn never means
# the static one.

# Paths relative to the file where they can be, so that an installation can be moved.
set(QATTN_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
if(NOT IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  file(RELATIVE_PATH to_prefix /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
  string(REGEX REPLACE "/$" "" to_prefix "${to_prefix}")
  set(QATTN_PC_PREFIX "\${pcfiledir}/${to_prefix}")
endif()
foreach(variable IN ITEMS LIBDIR INCLUDEDIR)
  set(QATTN_PC_${variable} ${CMAKE_INSTALL_${variable}})
  if(NOT IS_ABSOLUTE "${QATTN_PC_${variable}}")
    set(QATTN_PC_${variable} "\${prefix}/${QATTN_PC_${variable}}")
  endif()
endforeach()

# What a static library leaves to whoever links it; the C++ library for programs in C.
set(private)
if(QATTN_WITH_CUDA)
  list(APPEND private "\${libdir}/qattn/libcudart_static.a" -lrt)
endif()
foreach(library IN LISTS OpenMP_CXX_LIB_NAMES CMAKE_DL_LIBS)
  list(APPEND private -l${library})
endforeach()
list(APPEND private ${CMAKE_THREAD_LIBS_INIT} -lstdc++ -lm)
list(REMOVE_DUPLICATES private)
list(JOIN private " " private)

set(QATTN_PC_NAME qattn)
set(QATTN_PC_LIBS "-L\${libdir} -lqattn")
set(QATTN_PC_LIBS_PRIVATE "${private}")
if(NOT QATTN_BUILD_SHARED)
  string(APPEND QATTN_PC_LIBS " ${private}")
endif()
if(NOT QATTN_BUILD_SHARED OR NOT QATTN_BUILD_STATIC)
  set(QATTN_PC_LIBS_PRIVATE)
endif()
configure_file(${CMAKE_CURRENT_LIST_DIR}/qattn.pc.in ${PROJECT_BINARY_DIR}/qattn.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/qattn.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
        COMPONENT development)

if(QATTN_BUILD_STATIC)
  set(QATTN_PC_NAME qattn-static)
  set(QATTN_PC_LIBS "\${libdir}/${CMAKE_STATIC_LIBRARY_PREFIX}qattn${CMAKE_STATIC_LIBRARY_SUFFIX} ${private}")
  set(QATTN_PC_LIBS_PRIVATE)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/qattn.pc.in ${PROJECT_BINARY_DIR}/qattn-static.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/qattn-static.pc
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
endif()
