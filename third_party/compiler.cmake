# ccache where it is there; and the oldest compilers that are known to build this: an older one gets a sentence, not pages of errors.
set(oldest_GNU 12)
set(oldest_Clang 16)
set(oldest_AppleClang 15)
set(oldest_MSVC 19.30)
set(oldest ${oldest_${CMAKE_CXX_COMPILER_ID}})
if(NOT oldest)
  message(WARNING "${CMAKE_CXX_COMPILER_ID} (${CMAKE_CXX_COMPILER}) is not tested: CI builds with gcc and clang on Linux, and AppleClang and MSVC are meant to work.")
elseif(CMAKE_CXX_COMPILER_VERSION VERSION_LESS oldest)
  message(FATAL_ERROR "${CMAKE_CXX_COMPILER} is ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}; this needs gcc 12, clang 16, "
    "AppleClang 15, MSVC 19.30 (Visual Studio 2022) or newer. Choose another with: cmake --fresh -DCMAKE_CXX_COMPILER=g++-12 ...")
endif()

if(CMAKE_CXX_BYTE_ORDER STREQUAL "BIG_ENDIAN")
  message(FATAL_ERROR "${CMAKE_SYSTEM_PROCESSOR} is big-endian; models, caches and the codec's bytes are little-endian, and are read as they lie.")
endif()

# Two faults of gcc for Windows, neither of which it reports. It takes an inline function's registers for granted (-fipa-ra) though the
# linker may keep another file's copy, built with other options: the tests are. And it aligns vectors on the stack to 16 bytes, and
# moves them as if to 32 and 64 (its bug 54412; Debian's is patched).
if(MINGW AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-fno-ipa-ra -Wa,-muse-unaligned-vector-move)
endif()

# gcc looks for garbage whenever it has 128 MiB, which takes a twelfth of a unity build's time. Where Ninja's jobs, of which there are two more
# than processors, have 1.5 GiB each, it looks from 512 MiB on: the largest unit then takes 1 GiB.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  cmake_host_system_information(RESULT memory QUERY TOTAL_PHYSICAL_MEMORY)
  cmake_host_system_information(RESULT processors QUERY NUMBER_OF_LOGICAL_CORES)
  math(EXPR memory_of_job "${memory} / (${processors} + 2)")
  if(memory_of_job GREATER_EQUAL 1536)
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=524288>)
  endif()
endif()

find_program(CCACHE ccache)
mark_as_advanced(CCACHE)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without these two ccache compiles again whatever has a precompiled header. How much memory gcc takes is the same to it.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_IGNOREOPTIONS=--param=ggc* ${CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
endif()
