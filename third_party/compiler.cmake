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

find_program(CCACHE ccache)
mark_as_advanced(CCACHE)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
