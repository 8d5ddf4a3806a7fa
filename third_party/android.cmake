# Toolchain: programs for 64-bit Android, built by the NDK (r26 or later: its libc++ has what C++20 needs) whose directory
# ANDROID_NDK_HOME or ANDROID_NDK names. API level 29 has posix_spawn, and Vulkan 1.1 at the least.
if(NOT DEFINED ENV{TQ_NDK}) # CMake reads a toolchain again for each of its own checks
  foreach(name ANDROID_NDK_HOME ANDROID_NDK)
    if(EXISTS "$ENV{${name}}/build/cmake/android.toolchain.cmake")
      set(ENV{TQ_NDK} "$ENV{${name}}")
      break()
    endif()
  endforeach()
endif()
if(NOT DEFINED ENV{TQ_NDK})
  message(FATAL_ERROR "No Android NDK was found: set ANDROID_NDK_HOME to the directory of one (that has build/cmake/android.toolchain.cmake). "
    "On a phone, in Termux, none is needed: tools/quickstart chat")
endif()
set(ANDROID_ABI arm64-v8a)
set(ANDROID_PLATFORM android-29)
set(ANDROID_STL c++_static)
include("$ENV{TQ_NDK}/build/cmake/android.toolchain.cmake")
