# Everything that every target of ours is compiled with. Nothing here depends on the machine that builds.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_EXTENSIONS OFF)
# Sanitizer builds: as fast as they can be while stack traces stay readable.
set(CMAKE_CXX_FLAGS_SANITIZE "-O1 -g1" CACHE STRING "")

find_program(NIBBLE_CCACHE ccache)
mark_as_advanced(NIBBLE_CCACHE)
if(NIBBLE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${NIBBLE_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${NIBBLE_CCACHE})
endif()

add_library(nibble_flags INTERFACE)
set(host_warnings -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion
    -Wno-missing-field-initializers)  # designated initialisers name what they set
target_compile_options(nibble_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:${host_warnings}>
  # A product's bits may not depend on whether the compiler fuses a multiply with an add.
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${NIBBLE_DEV}>>:-Werror>
  $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 -lineinfo --expt-relaxed-constexpr -Xcompiler=-Wall>
  $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${NIBBLE_DEV}>>:--Werror=all-warnings>)
