# tq_volk: the Vulkan headers, and volk, which loads the driver at run time: nothing links to a Vulkan library.
# The three Vulkan dependencies that may be fetched (these two and glslang) are of one SDK, 1.4.309.
if(TQ_SYSTEM_DEPENDENCIES)
  find_path(VULKAN_HEADERS vulkan/vulkan_core.h HINTS $ENV{VULKAN_SDK}/include $ENV{VULKAN_SDK}/Include)
  find_path(VOLK_INCLUDE volk.c HINTS $ENV{VULKAN_SDK}/include/volk $ENV{VULKAN_SDK}/Include/Volk PATH_SUFFIXES volk)
  mark_as_advanced(VULKAN_HEADERS VOLK_INCLUDE)
endif()

# tq_vulkan_version(OUT DIRECTORY): the version of the headers there, such as 1.3.239.
function(tq_vulkan_version out directory)
  file(STRINGS ${directory}/vulkan/vulkan_core.h complete REGEX "define VK_HEADER_VERSION_COMPLETE ")
  file(STRINGS ${directory}/vulkan/vulkan_core.h patch REGEX "define VK_HEADER_VERSION ")
  string(REGEX REPLACE ".*\\(0, ([0-9]+), ([0-9]+),.*" "\\1.\\2" version "${complete}")
  string(REGEX REPLACE ".* ([0-9]+)$" "${version}.\\1" version "${patch}")
  set(${out} "${version}" PARENT_SCOPE)
endfunction()

set(vulkan_version 0)
if(TQ_SYSTEM_DEPENDENCIES AND VULKAN_HEADERS)
  tq_vulkan_version(vulkan_version ${VULKAN_HEADERS})
endif()
if(vulkan_version VERSION_GREATER_EQUAL 1.3)
  message(STATUS "Vulkan headers: ${vulkan_version}, the system's in ${VULKAN_HEADERS}")
  set(vulkan_headers_directory ${VULKAN_HEADERS})
else()
  tq_fetch(vulkan_headers 1.4.309 https://github.com/KhronosGroup/Vulkan-Headers/archive/refs/tags/vulkan-sdk-1.4.309.0.tar.gz
    2bc1b4127950badc80212abf1edfa5c3b5032f3425edf37255863ba7592c1969)
  set(vulkan_headers_directory ${vulkan_headers_SOURCE_DIR}/include)
  tq_vulkan_version(vulkan_version ${vulkan_headers_directory})
endif()

if(TQ_SYSTEM_DEPENDENCIES AND VOLK_INCLUDE)
  message(STATUS "volk: the system's in ${VOLK_INCLUDE}")
  set(volk_directory ${VOLK_INCLUDE})
else()
  tq_fetch(volk 1.4.309 https://github.com/zeux/volk/archive/refs/tags/vulkan-sdk-1.4.309.0.tar.gz
    1724924d8e3dccf0c508887edb79d56d9dd11b0738eab5a44e2fa95b8a9ebe1c)
  set(volk_directory ${volk_SOURCE_DIR})
endif()

tq_headers(tq_volk ${volk_directory} ${vulkan_headers_directory})
target_compile_definitions(tq_volk INTERFACE VK_NO_PROTOTYPES)
target_link_libraries(tq_volk INTERFACE ${CMAKE_DL_LIBS})
tq_depends(vulkan_headers contained Apache-2.0 "${vulkan_version}")
tq_read_version(volk_version ${volk_directory}/volk.h VOLK_HEADER_VERSION)
tq_depends(volk contained MIT "${volk_version}")
