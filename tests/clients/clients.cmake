# The server with the libraries and programs that people use, over a model that is scripted. They come from npm.
if(UNIX AND TQ_SERVER)
  # Without tq_test_support, which needs all shaders.
  add_executable(scripted_server tests/clients/scripted_server.cpp tests/clients/scripts.cpp tests/support/scripted_forward.cpp
    tests/support/qwen3_vocabulary.cpp tests/support/huggingface_files.cpp tests/support/gguf_writer.cpp)
  target_link_libraries(scripted_server PRIVATE tq_server tq_model CLI11::CLI11 doctest::doctest)
  target_compile_options(scripted_server PRIVATE $<$<CONFIG:Release>:-O1>)
  target_compile_definitions(scripted_server PRIVATE TQ_SOURCE_DIR="${CMAKE_SOURCE_DIR}" DOCTEST_CONFIG_DISABLE)
  tq_test(clients "" ${CMAKE_SOURCE_DIR}/tests/clients/run libraries $<TARGET_FILE:scripted_server> ${CMAKE_BINARY_DIR}/clients)
  tq_test(agents "" ${CMAKE_SOURCE_DIR}/tests/clients/run agents $<TARGET_FILE:scripted_server> ${CMAKE_BINARY_DIR}/agents)
endif()
