# One object library per row of src/dispatch/kernels.inc.
#
# QATTN_CPU_KERNELS: their names. QATTN_ISA_OBJECTS: their finished objects. QATTN_CUDA_TARGETS: object libraries of the
# CUDA kernels, one per head_dim, since nvcc is slow and these build side by side.
# QATTN_CUDA_DEFINITIONS: which machine code each kernel has, for detection.

set(kernel_table ${PROJECT_SOURCE_DIR}/src/dispatch/kernels.inc)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${kernel_table})
file(STRINGS ${kernel_table} rows REGEX "^QATTN_[A-Z]+_KERNEL")

# As kCompiledHeadDims (src/cuda/attention_params.hpp): one that is missing does not link.
set(QATTN_CUDA_HEAD_DIMS 32 64 96 128 192 256)
set(QATTN_CPU_KERNELS)
set(QATTN_ISA_OBJECTS)
set(QATTN_ISA_TARGETS)
set(QATTN_CUDA_TARGETS)
set(QATTN_CUDA_DEFINITIONS)

# Object library of one source in src/cuda, appended to QATTN_CUDA_TARGETS.
function(qattn_add_cuda_object target source architectures)
  add_library(${target} OBJECT ${PROJECT_SOURCE_DIR}/src/cuda/${source})
  target_link_libraries(${target} PRIVATE qattn_settings CUDA::cudart_static)
  # The language level as a flag: CMake 3.25 does not know that of CUDA 13's nvcc.
  target_compile_options(${target} PRIVATE -std=c++20 -Xcompiler=-Wall,-Wextra)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON
    CUDA_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON CUDA_ARCHITECTURES "${architectures}")
  set(QATTN_CUDA_TARGETS ${QATTN_CUDA_TARGETS} ${target} PARENT_SCOPE)
endfunction()

foreach(row IN LISTS rows)
  string(REPLACE ";" "|" row "${row}")
  if(row MATCHES "^QATTN_CPU_KERNEL\\(([a-z0-9_]+), ([a-z0-9_]+), \"([^\"]*)\"\\)")
    set(name ${CMAKE_MATCH_1})
    set(flags "${CMAKE_MATCH_3}")
    if(NOT CMAKE_MATCH_2 STREQUAL "any" AND NOT CMAKE_MATCH_2 STREQUAL CMAKE_SYSTEM_PROCESSOR)
      continue()
    endif()
    qattn_add_isa_object(qattn_cpu_${name} ${PROJECT_SOURCE_DIR}/src/cpu/${name}.cpp "${flags}"
                         qattn_cpu_${name}_run)
    if(QATTN_XSIMD_INCLUDE)
      target_include_directories(qattn_cpu_${name} SYSTEM PRIVATE ${QATTN_XSIMD_INCLUDE})
    endif()
    list(APPEND QATTN_CPU_KERNELS ${name})
    list(APPEND QATTN_ISA_OBJECTS ${qattn_cpu_${name}_object})
    list(APPEND QATTN_ISA_TARGETS qattn_cpu_${name}_localised)
  elseif(row MATCHES "^QATTN_CUDA_KERNEL\\(([a-z0-9_]+), \"([^\"]*)\"")
    if(NOT QATTN_WITH_CUDA)
      continue()
    endif()
    set(name ${CMAKE_MATCH_1})
    string(REPLACE "|" ";" architectures "${CMAKE_MATCH_2}")
    # Architecture-specific code ("90a") compiles for nothing else, whatever the user asks for.
    if(NOT QATTN_CUDA_ARCHITECTURES_FROM_TABLE AND NOT architectures MATCHES "[0-9]a-real")
      set(architectures ${CMAKE_CUDA_ARCHITECTURES})
    endif()
    string(TOUPPER ${name} upper_name)
    string(REPLACE ";" "," architecture_list "${architectures}")
    list(APPEND QATTN_CUDA_DEFINITIONS QATTN_${upper_name}_ARCHITECTURES="${architecture_list}")
    foreach(head_dim IN LISTS QATTN_CUDA_HEAD_DIMS)
      qattn_add_cuda_object(qattn_cuda_${name}_d${head_dim} ${name}.cu "${architectures}")
      target_compile_definitions(qattn_cuda_${name}_d${head_dim} PRIVATE QATTN_HEAD_DIM=${head_dim})
    endforeach()
  elseif(NOT row MATCHES "^QATTN_REFERENCE_KERNEL\\(([a-z0-9_]+)\\)")
    message(FATAL_ERROR "src/dispatch/kernels.inc: cannot read the row: ${row}")
  endif()
endforeach()

# What is no attention kernel runs wherever any of them does.
if(QATTN_WITH_CUDA)
  set(architectures "80-real;90-real;80-virtual")
  if(NOT QATTN_CUDA_ARCHITECTURES_FROM_TABLE)
    set(architectures ${CMAKE_CUDA_ARCHITECTURES})
  endif()
  qattn_add_cuda_object(qattn_cuda_quantize quantize.cu "${architectures}")
endif()
