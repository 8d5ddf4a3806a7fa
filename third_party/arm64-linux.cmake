# Toolchain: programs for Linux on 64-bit Arm, built on Debian with its g++-aarch64-linux-gnu and run by its qemu-user-static. Libraries
# come from TQ_SYSROOT, where it is given (tests/arm64/get unpacks one).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
if(TQ_SYSROOT) # headers that differ between architectures, such as openssl/opensslconf.h, and libraries that libraries need
  set(CMAKE_EXE_LINKER_FLAGS_INIT
    "-Wl,-rpath-link,${TQ_SYSROOT}/lib/aarch64-linux-gnu:${TQ_SYSROOT}/usr/lib/aarch64-linux-gnu")
  set(CMAKE_C_FLAGS_INIT "-idirafter ${TQ_SYSROOT}/usr/include/aarch64-linux-gnu")
  set(CMAKE_CXX_FLAGS_INIT "${CMAKE_C_FLAGS_INIT}")
endif()
# No path of the sysroot in a program, whose length would be in a package, too: qemu finds libraries by QEMU_LD_PREFIX or -L.
set(CMAKE_SKIP_RPATH ON)
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu ${TQ_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER) # glslang and spirv-val are the host's
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TQ_SYSROOT)
find_program(QEMU qemu-aarch64-static)
mark_as_advanced(QEMU)
if(QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${QEMU} -L ${TQ_SYSROOT})
endif()
