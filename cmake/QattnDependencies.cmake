# What the build uses of others. Libraries come from the system's packages; a machine that reaches no
# registry gets them from .deps/ (./dev deps --offline).

set(QATTN_OFFLINE_DEPS ${PROJECT_SOURCE_DIR}/.deps)
if(EXISTS ${QATTN_OFFLINE_DEPS})
  list(APPEND CMAKE_SYSTEM_PREFIX_PATH ${QATTN_OFFLINE_DEPS}/usr)  # searched last
endif()

find_package(Eigen3 3.4 REQUIRED NO_MODULE)
find_package(OpenMP REQUIRED COMPONENTS CXX)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

# xsimd: only its headers are used, and only where there are x86 kernels.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  find_path(QATTN_XSIMD_INCLUDE xsimd/xsimd.hpp PATHS ${QATTN_OFFLINE_DEPS}/usr/include REQUIRED)
endif()

if(QATTN_BUILD_COMMAND)
  find_package(CLI11 REQUIRED)
endif()
if(QATTN_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
if(QATTN_BUILD_BENCH)
  find_package(benchmark REQUIRED)
endif()

# CUDA. The explicit list of architectures in kernels.inc decides what is built; "native" never does.
set(QATTN_WITH_CUDA OFF)
if(NOT QATTN_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80)
    set(QATTN_CUDA_ARCHITECTURES_FROM_TABLE ON)
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(QATTN_WITH_CUDA ON)
  elseif(QATTN_CUDA STREQUAL "ON")
    message(FATAL_ERROR "QATTN_CUDA=ON, but no CUDA compiler was found (set CUDACXX, or "
                        "QATTN_CUDA=OFF for a build without CUDA)")
  endif()
endif()
message(STATUS "qattn: CUDA kernels ${QATTN_WITH_CUDA}")
