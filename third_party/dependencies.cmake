# Every dependency: the system's own where there is one new enough, else a pinned release, downloaded and unpacked in the build
# directory when it is configured. Nothing is vendored. -DTQ_SYSTEM_DEPENDENCIES=OFF takes the pinned release of each.
include(FetchContent)
option(TQ_SYSTEM_DEPENDENCIES "Use the system's own libraries and tools where they are new enough" ON)
include(third_party/portable.cmake)

# tq_depends(NAME RELATION LICENCE VERSION): notes a dependency for the list that packages contain (packaging/sbom.cmake). RELATION:
# contained (compiled in, with its text in third_party/licences), linked (the system's library) or build (a tool).
function(tq_depends name relation licence version)
  get_property(fetched GLOBAL PROPERTY tq_fetched_${name}) # by tq_fetch: version, address, hash
  if(NOT fetched)
    set(fetched "the system's|")
  endif()
  if(NOT fetched MATCHES "^[0-9]")
    set(fetched "${version}|${fetched}")
  endif()
  set_property(GLOBAL APPEND PROPERTY tq_dependencies "${name}|${relation}|${licence}|${fetched}")
endfunction()

# tq_read_version(OUT FILE NAMES...): the numbers that FILE defines as NAMES, joined by points; empty where it does not.
function(tq_read_version out file)
  set(numbers)
  foreach(name ${ARGN})
    set(lines)
    if(EXISTS ${file})
      file(STRINGS ${file} lines REGEX "^#define ${name} +\"?[0-9.]+\"?")
    endif()
    if(lines)
      string(REGEX REPLACE "^#define ${name} +\"?([0-9.]+).*" "\\1" number "${lines}")
      list(APPEND numbers ${number})
    endif()
  endforeach()
  string(JOIN . numbers ${numbers})
  set(${out} "${numbers}" PARENT_SCOPE)
endfunction()

# tq_described_version(OUT LIBRARY NAME): the version in NAME.pc beside a library's file; empty where there is none.
function(tq_described_version out library name)
  get_filename_component(directory ${library} DIRECTORY)
  set(version)
  if(EXISTS ${directory}/pkgconfig/${name}.pc)
    file(STRINGS ${directory}/pkgconfig/${name}.pc version REGEX "^[Vv]ersion *[:=] *[0-9]" LIMIT_COUNT 1) # ncurses' has a variable
    string(REGEX REPLACE "^[^0-9]+" "" version "${version}")
  endif()
  set(${out} "${version}" PARENT_SCOPE)
endfunction()

# tq_fetch(NAME VERSION URL SHA256): sets NAME_SOURCE_DIR, lower case. The release's own CMake files are not run.
macro(tq_fetch name version url sha256)
  string(TOUPPER ${name} upper)
  if(FETCHCONTENT_SOURCE_DIR_${upper})
    message(STATUS "${name}: from ${FETCHCONTENT_SOURCE_DIR_${upper}}, not the pinned ${version}")
    set_property(GLOBAL PROPERTY tq_fetched_${name} "sources in a directory, not the pinned release|")
  else()
    message(STATUS "${name}: ${version}, fetched from ${url}")
    set_property(GLOBAL PROPERTY tq_fetched_${name} "${version}|${url}|${sha256}")
  endif()
  FetchContent_Declare(${name} URL ${url} URL_HASH SHA256=${sha256} DOWNLOAD_EXTRACT_TIMESTAMP OFF SOURCE_SUBDIR not-run)
  FetchContent_MakeAvailable(${name})
endmacro()

# tq_find_package(NAME MINIMUM [UNLESS_PORTABLE]): sets NAME_FOUND, from the system's CMake package of that name.
macro(tq_find_package name minimum)
  if(TQ_SYSTEM_DEPENDENCIES AND NOT (TQ_PORTABLE AND "${ARGN}" STREQUAL "UNLESS_PORTABLE"))
    find_package(${name} ${minimum} CONFIG QUIET)
  endif()
  if(${name}_FOUND)
    message(STATUS "${name}: ${${name}_VERSION}, the system's in ${${name}_DIR}")
  endif()
endmacro()

# Headers of an imported target are system headers: their warnings are not ours.
function(tq_headers target)
  add_library(${target} INTERFACE IMPORTED)
  target_include_directories(${target} INTERFACE ${ARGN})
endfunction()

find_package(Threads REQUIRED)

# The library, not its headers alone: these cost every source file four seconds of compiling.
tq_find_package(fmt 9 UNLESS_PORTABLE)
if(NOT fmt_FOUND)
  tq_fetch(fmt 11.1.4 https://github.com/fmtlib/fmt/releases/download/11.1.4/fmt-11.1.4.zip
    49b039601196e1a765e81c5c9a05a61ed3d33f23b3961323d7322e4fe213d3e6)
  add_library(tq_fmt STATIC ${fmt_SOURCE_DIR}/src/format.cc ${fmt_SOURCE_DIR}/src/os.cc)
  target_include_directories(tq_fmt SYSTEM PUBLIC ${fmt_SOURCE_DIR}/include)
  target_compile_options(tq_fmt PUBLIC $<$<CXX_COMPILER_ID:MSVC>:/utf-8>)
  add_library(fmt::fmt ALIAS tq_fmt)
endif()
if(NOT fmt_VERSION)
  foreach(header core base) # 110101: 11.1.1; before 11 in core.h
    tq_read_version(found ${fmt_SOURCE_DIR}/include/fmt/${header}.h FMT_VERSION)
    string(APPEND fmt_VERSION "${found}")
  endforeach()
  string(REGEX REPLACE "^([0-9]+)([0-9][0-9])([0-9][0-9])$" "\\1.\\2.\\3" fmt_VERSION "${fmt_VERSION}")
  string(REPLACE ".0" "." fmt_VERSION "${fmt_VERSION}")
endif()
tq_depends(fmt contained MIT "${fmt_VERSION}")

tq_find_package(CLI11 2.1)
if(NOT CLI11_FOUND)
  tq_fetch(cli11 2.4.2 https://github.com/CLIUtils/CLI11/archive/refs/tags/v2.4.2.tar.gz
    f2d893a65c3b1324c50d4e682c0cdc021dd0477ae2c048544f39eed6654b699a)
  tq_headers(CLI11::CLI11 ${cli11_SOURCE_DIR}/include)
  tq_read_version(CLI11_VERSION ${cli11_SOURCE_DIR}/include/CLI/Version.hpp CLI11_VERSION_MAJOR CLI11_VERSION_MINOR CLI11_VERSION_PATCH)
endif()
tq_depends(cli11 contained BSD-3-Clause "${CLI11_VERSION}")

tq_find_package(nlohmann_json 3.10)
if(NOT nlohmann_json_FOUND)
  tq_fetch(nlohmann_json 3.11.3 https://github.com/nlohmann/json/archive/refs/tags/v3.11.3.tar.gz
    0d8ef5af7f9794e3263480193c491549b2ba6cc74bb018906202ada498a79406)
  tq_headers(nlohmann_json::nlohmann_json ${nlohmann_json_SOURCE_DIR}/include)
  tq_read_version(nlohmann_json_VERSION ${nlohmann_json_SOURCE_DIR}/include/nlohmann/detail/abi_macros.hpp
    NLOHMANN_JSON_VERSION_MAJOR NLOHMANN_JSON_VERSION_MINOR NLOHMANN_JSON_VERSION_PATCH)
endif()
tq_depends(nlohmann_json contained MIT "${nlohmann_json_VERSION}")

include(third_party/highway.cmake)

if(BUILD_TESTING)
  tq_find_package(doctest 2.4.6)
  if(NOT doctest_FOUND)
    tq_fetch(doctest 2.4.11 https://github.com/doctest/doctest/archive/refs/tags/v2.4.11.tar.gz
      632ed2c05a7f53fa961381497bf8069093f0d6628c5f26286161fbd32a560186)
    tq_headers(doctest::doctest ${doctest_SOURCE_DIR})
  endif()
endif()

# Downloads are made with the system's own libcurl and OpenSSL alone: what speaks to the network gets its security updates from there.
option(TQ_DOWNLOADS "Download models (-hf), with the system's libcurl and OpenSSL" ON)
if(TQ_DOWNLOADS)
  find_package(CURL 7.62 QUIET)
  find_package(OpenSSL 1.1 QUIET)
  if(CURL_FOUND AND OPENSSL_FOUND)
    message(STATUS "Downloads: with libcurl ${CURL_VERSION_STRING} and OpenSSL ${OPENSSL_VERSION}")
    tq_depends(curl linked curl "${CURL_VERSION_STRING}")
    tq_depends(openssl linked Apache-2.0 "${OPENSSL_VERSION}")
  else()
    message(STATUS "Downloads: none (libcurl or OpenSSL is missing: Debian has them in libcurl4-openssl-dev and libssl-dev)")
    set(TQ_DOWNLOADS OFF) # for this run only, so that they are found when they have been installed
  endif()
endif()

find_package(OpenSSL 1.1.1 QUIET)
if(NOT OPENSSL_FOUND)
  message(STATUS "Server: without TLS (OpenSSL is missing: Debian has it in libssl-dev)")
endif()
include(third_party/utf8proc.cmake)
include(third_party/libedit.cmake)
include(third_party/hiredis.cmake)
include(third_party/mpi.cmake)
include(third_party/vulkan.cmake)
include(third_party/glslang.cmake)
if(TQ_PORTABLE_LINK_OPTIONS)
  tq_depends(libstdcxx contained "GPL-3.0-or-later WITH GCC-exception-3.1" "${CMAKE_CXX_COMPILER_VERSION}")
endif()
if(MINGW)
  find_path(MINGW_INCLUDE _mingw_mac.h)
  mark_as_advanced(MINGW_INCLUDE)
  tq_read_version(mingw_version ${MINGW_INCLUDE}/_mingw_mac.h __MINGW64_VERSION_MAJOR __MINGW64_VERSION_MINOR __MINGW64_VERSION_BUGFIX)
  tq_depends(mingw_w64 contained "ZPL-2.1 AND MIT AND BSD-3-Clause" "${mingw_version}")
endif()
