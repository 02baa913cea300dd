# Settings that the project's own targets share.

add_library(qattn_settings INTERFACE)
target_compile_features(qattn_settings INTERFACE cxx_std_20)
target_include_directories(qattn_settings INTERFACE
  ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
# -Wno-restrict: GCC 12 reports it falsely for "text" + std::string (GCC bug 105651).
# -Wno-dangling-reference: GCC 13 reports it for any function that takes a temporary and returns a
# reference to something else.
# Without a build type, as a subdirectory of a project that has none, kernels are optimised all the
# same.
target_compile_options(qattn_settings INTERFACE
  $<$<CONFIG:>:-O3>
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict;-Wno-dangling-reference>
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${QATTN_WARNINGS_AS_ERRORS}>>:-Werror>)

# Makes an object of `source` that may use the instruction sets of `flags` and leaks nothing of them:
# its COMDAT groups are dissolved and every symbol but `exported` is made local, so that the linker
# cannot hand an inline function compiled for AVX-512 to a caller compiled for the baseline.
# <target>_object holds the path of the finished object.
function(qattn_add_isa_object target source flags exported)
  separate_arguments(flag_list UNIX_COMMAND "${flags}")
  add_library(${target} OBJECT ${source})
  target_link_libraries(${target} PRIVATE qattn_settings)
  # -ffp-contract=off: bits must not depend on what a compiler fuses (docs/numerics.md).
  # -fno-gnu-unique: objcopy cannot make such symbols local.
  # -Wno-*uninitialized: GCC 12 takes the undefined operands of its own AVX-512 intrinsics for
  # mistakes of ours (GCC bug 105593).
  target_compile_options(${target} PRIVATE
    ${flag_list} -ffp-contract=off -fno-exceptions -fno-rtti
    -fno-gnu-unique -fno-asynchronous-unwind-tables
    $<$<CXX_COMPILER_ID:GNU>:-Wno-uninitialized> $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON INTERPROCEDURAL_OPTIMIZATION OFF)
  set(object ${CMAKE_CURRENT_BINARY_DIR}/isa/${target}.o)
  add_custom_command(OUTPUT ${object}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_CURRENT_BINARY_DIR}/isa
    COMMAND ${CMAKE_LINKER} -r --force-group-allocation -o ${object} $<TARGET_OBJECTS:${target}>
    COMMAND ${CMAKE_OBJCOPY} --keep-global-symbol=${exported} ${object}
    DEPENDS ${target} $<TARGET_OBJECTS:${target}>
    COMMENT "Localising the symbols of ${target}" VERBATIM COMMAND_EXPAND_LISTS)
  add_custom_target(${target}_localised DEPENDS ${object})
  set(${target}_object ${object} PARENT_SCOPE)
endfunction()
