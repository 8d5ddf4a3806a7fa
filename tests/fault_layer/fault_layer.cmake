# tq_fault_layer, in BUILD/fault_layer with its manifest, and TQ_FAULT_LAYER, that directory; neither where the system is not Linux. Beside
# it, in crashing_driver, a driver that crashes whoever loads it.
set(TQ_FAULT_LAYER)
if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
  set(TQ_FAULT_LAYER ${CMAKE_BINARY_DIR}/fault_layer)
  file(GLOB fault_layer_sources CONFIGURE_DEPENDS tests/fault_layer/*.cpp)
  add_library(tq_fault_layer MODULE ${fault_layer_sources})
  target_link_libraries(tq_fault_layer PRIVATE tq_options tq_volk Threads::Threads)
  # The loader unloads a layer with each instance, and this one counts to the end.
  target_link_options(tq_fault_layer PRIVATE -Wl,-z,nodelete)
  set_target_properties(tq_fault_layer PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${TQ_FAULT_LAYER} CXX_VISIBILITY_PRESET hidden)
  add_library(tq_crashing_driver MODULE tests/fault_layer/driver/crashing_driver.cpp)
  set_target_properties(tq_crashing_driver PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${TQ_FAULT_LAYER}/crashing_driver)
  configure_file(tests/fault_layer/driver/crashing_driver.json ${TQ_FAULT_LAYER}/crashing_driver/crashing_driver.json COPYONLY)
  configure_file(tests/fault_layer/fault_layer.json ${TQ_FAULT_LAYER}/fault_layer.json COPYONLY)
endif()
