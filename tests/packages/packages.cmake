# Packages: made of this build and run from where they were unpacked; and that what is downloaded is pinned.
if(UNIX AND TARGET tq-run AND NOT TQ_SANITIZE)
  tq_test(packages "" ${CMAKE_SOURCE_DIR}/tests/packages/smoke ${CMAKE_BINARY_DIR})
  tq_test(pins "" ${CMAKE_SOURCE_DIR}/tests/packages/pins)
endif()
