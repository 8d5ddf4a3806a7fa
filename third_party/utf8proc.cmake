# utf8proc::utf8proc, Unicode normalisation. Distributions ship it without CMake files, so it is looked for by hand.
if(TQ_SYSTEM_DEPENDENCIES)
  find_path(UTF8PROC_INCLUDE utf8proc.h)
  find_library(UTF8PROC_LIBRARY NAMES utf8proc utf8proc_static)
  mark_as_advanced(UTF8PROC_INCLUDE UTF8PROC_LIBRARY)
endif()

if(TQ_SYSTEM_DEPENDENCIES AND UTF8PROC_INCLUDE AND UTF8PROC_LIBRARY)
  message(STATUS "utf8proc: the system's ${UTF8PROC_LIBRARY}")
  tq_headers(utf8proc::utf8proc ${UTF8PROC_INCLUDE})
  target_link_libraries(utf8proc::utf8proc INTERFACE ${UTF8PROC_LIBRARY})
else()
  tq_fetch(utf8proc 2.9.0 https://github.com/JuliaStrings/utf8proc/archive/refs/tags/v2.9.0.tar.gz
    18c1626e9fc5a2e192311e36b3010bfc698078f692888940f1fa150547abb0c1)
  add_library(tq_utf8proc STATIC ${utf8proc_SOURCE_DIR}/utf8proc.c)
  target_include_directories(tq_utf8proc SYSTEM PUBLIC ${utf8proc_SOURCE_DIR})
  target_compile_definitions(tq_utf8proc PUBLIC UTF8PROC_STATIC)
  add_library(utf8proc::utf8proc ALIAS tq_utf8proc)
endif()
