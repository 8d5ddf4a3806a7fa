# Highway: vectors for every instruction set, chosen when the program runs. Its sources are compiled here where the system has none.
tq_find_package(hwy 1.0.3)
if(NOT hwy_FOUND)
  tq_fetch(highway 1.2.0 https://github.com/google/highway/archive/refs/tags/1.2.0.tar.gz
    7e0be78b8318e8bdbf6fa545d2ecb4c90f947df03f7aadc42c1967f019e63343)
  set(highway_sources)
  foreach(name abort aligned_allocator per_target print targets)
    list(APPEND highway_sources ${highway_SOURCE_DIR}/hwy/${name}.cc)
  endforeach()
  add_library(tq_highway STATIC EXCLUDE_FROM_ALL ${highway_sources})
  target_include_directories(tq_highway SYSTEM PUBLIC ${highway_SOURCE_DIR})
  target_compile_definitions(tq_highway PUBLIC HWY_STATIC_DEFINE)
  add_library(hwy::hwy ALIAS tq_highway)
endif()
