# The library, static and shared from the same objects: everything compiled for the baseline, the ISA
# objects, the CUDA objects.

include(GNUInstallDirs)

# Both for whoever installs them; only the preferred one inside another project.
set(preferred STATIC)
if(BUILD_SHARED_LIBS)
  set(preferred SHARED)
endif()
foreach(kind IN ITEMS STATIC SHARED)
  set(wanted ${PROJECT_IS_TOP_LEVEL})
  if(kind STREQUAL preferred)
    set(wanted ON)
  endif()
  string(TOLOWER ${kind} name)
  option(QATTN_BUILD_${kind} "Build the ${name} library" ${wanted})
endforeach()
if(NOT QATTN_BUILD_STATIC AND NOT QATTN_BUILD_SHARED)
  message(FATAL_ERROR "QATTN_BUILD_STATIC and QATTN_BUILD_SHARED are both OFF (one must be ON)")
endif()

# CPU kernels are not among these: they are compiled with flags of their own (QattnKernels.cmake).
file(GLOB sources CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/src/capi/*.cpp
  ${PROJECT_SOURCE_DIR}/src/core/*.cpp
  ${PROJECT_SOURCE_DIR}/src/dispatch/*.cpp
  ${PROJECT_SOURCE_DIR}/src/quantize/*.cpp
  ${PROJECT_SOURCE_DIR}/src/reference/*.cpp)
list(APPEND sources src/cpu/detect.cpp src/cpu/driver.cpp src/cpu/threads.cpp src/cpu/tile_permission.cpp)
if(QATTN_WITH_CUDA)
  file(GLOB cuda_sources CONFIGURE_DEPENDS
    ${PROJECT_SOURCE_DIR}/src/cuda/*.cpp ${PROJECT_SOURCE_DIR}/src/cuda/staging/*.cpp)
  list(FILTER cuda_sources EXCLUDE REGEX "_absent\\.cpp$")
else()
  file(GLOB cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cuda/*_absent.cpp)
endif()
list(APPEND sources ${cuda_sources})

add_library(qattn_objects OBJECT ${sources})
target_link_libraries(qattn_objects PRIVATE qattn_settings Eigen3::Eigen OpenMP::OpenMP_CXX)
target_compile_definitions(qattn_objects PRIVATE QATTN_WITH_CUDA=$<BOOL:${QATTN_WITH_CUDA}>
  ${QATTN_CUDA_DEFINITIONS})
target_compile_options(qattn_objects PRIVATE -ffp-contract=off)
if(QATTN_WITH_CUDA)
  target_include_directories(qattn_objects SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
endif()
set_target_properties(qattn_objects PROPERTIES POSITION_INDEPENDENT_CODE ON
  CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)

set(cuda_objects)
foreach(target IN LISTS QATTN_CUDA_TARGETS)
  list(APPEND cuda_objects $<TARGET_OBJECTS:${target}>)
endforeach()
set_source_files_properties(${QATTN_ISA_OBJECTS} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)

# Makes qattn_static or qattn_shared, and the alias qattn::<target>.
function(qattn_add_library target kind)
  add_library(${target} ${kind}
    $<TARGET_OBJECTS:qattn_objects> ${QATTN_ISA_OBJECTS} ${cuda_objects})
  add_library(qattn::${target} ALIAS ${target})
  add_dependencies(${target} ${QATTN_ISA_TARGETS})
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME qattn
    LINKER_LANGUAGE CXX
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR})
  target_compile_features(${target} PUBLIC cxx_std_17)
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${target} PRIVATE OpenMP::OpenMP_CXX Threads::Threads ${CMAKE_DL_LIBS})
  if(QATTN_WITH_CUDA)
    # qattn::cudart: the CUDA runtime that is installed beside the static library.
    target_link_libraries(${target} PRIVATE
      $<BUILD_INTERFACE:CUDA::cudart_static> $<INSTALL_INTERFACE:qattn::cudart>)
  endif()
endfunction()

if(QATTN_BUILD_STATIC)
  qattn_add_library(qattn_static STATIC)
endif()
if(QATTN_BUILD_SHARED)
  qattn_add_library(qattn_shared SHARED)
  configure_file(cmake/package/qattn.map.in ${PROJECT_BINARY_DIR}/qattn.map @ONLY)
  # nodelete: libgomp's worker threads outlive a call, and dlclose() would unmap what they run.
  target_link_options(qattn_shared PRIVATE
    LINKER:--version-script=${PROJECT_BINARY_DIR}/qattn.map LINKER:-z,defs LINKER:-z,nodelete)
  set_property(TARGET qattn_shared APPEND PROPERTY LINK_DEPENDS ${PROJECT_BINARY_DIR}/qattn.map)
endif()

# qattn::qattn: the library for those who do not care, static unless BUILD_SHARED_LIBS says otherwise.
string(TOLOWER ${preferred} QATTN_PREFERRED)
if(NOT QATTN_BUILD_${preferred})
  set(QATTN_PREFERRED shared)
  if(QATTN_BUILD_STATIC)
    set(QATTN_PREFERRED static)
  endif()
endif()
add_library(qattn::qattn ALIAS qattn_${QATTN_PREFERRED})
