# TQ_PORTABLE: a program for packages. It links statically the libraries whose sonames differ between distributions, as pinned releases
# or as the system's archives (lib*.a), and the compiler's own; libcurl and OpenSSL stay the system's, which keeps them secure.
option(TQ_PORTABLE "Link statically what differs between distributions" OFF)
set(TQ_PORTABLE_LINK_OPTIONS)
if(TQ_PORTABLE AND NOT MSVC AND NOT APPLE)
  set(TQ_PORTABLE_LINK_OPTIONS -static-libgcc -static-libstdc++)
  if(MINGW)
    set(TQ_PORTABLE_LINK_OPTIONS -static)
  endif()
endif()
