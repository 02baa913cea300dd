# The library: everything compiled for the baseline, the ISA objects, the CUDA objects.

# CPU kernels are not among these: they are compiled with flags of their own (QattnKernels.cmake).
file(GLOB sources CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/src/core/*.cpp
  ${PROJECT_SOURCE_DIR}/src/dispatch/*.cpp
  ${PROJECT_SOURCE_DIR}/src/quantize/*.cpp
  ${PROJECT_SOURCE_DIR}/src/reference/*.cpp)
list(APPEND sources src/cpu/detect.cpp src/cpu/driver.cpp src/cpu/threads.cpp)
if(QATTN_WITH_CUDA)
  file(GLOB cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cuda/*.cpp)
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

# Static unless BUILD_SHARED_LIBS says otherwise. The target is not named after the library, since
# the command has that name.
set(cuda_objects)
foreach(target IN LISTS QATTN_CUDA_TARGETS)
  list(APPEND cuda_objects $<TARGET_OBJECTS:${target}>)
endforeach()
add_library(qattn_library $<TARGET_OBJECTS:qattn_objects> ${QATTN_ISA_OBJECTS} ${cuda_objects})
add_library(qattn::qattn ALIAS qattn_library)
set_source_files_properties(${QATTN_ISA_OBJECTS} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
add_dependencies(qattn_library ${QATTN_ISA_TARGETS})
set_target_properties(qattn_library PROPERTIES
  OUTPUT_NAME qattn
  EXPORT_NAME qattn
  LINKER_LANGUAGE CXX
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR})
target_compile_features(qattn_library PUBLIC cxx_std_17)
target_include_directories(qattn_library PUBLIC
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
target_link_libraries(qattn_library PRIVATE OpenMP::OpenMP_CXX Threads::Threads ${CMAKE_DL_LIBS})
if(QATTN_WITH_CUDA)
  # By path, so that whoever links an installed static library needs no CUDA toolkit in CMake.
  target_link_libraries(qattn_library PRIVATE $<BUILD_INTERFACE:CUDA::cudart_static>)
endif()
