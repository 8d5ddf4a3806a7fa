# The server with the libraries and programs that people use, over a model that is scripted; and the page. They come from npm.
if(UNIX)
  # Without tq_test_support, which needs all shaders.
  add_executable(scripted_server tests/clients/scripted_server.cpp tests/clients/scripts.cpp tests/support/scripted_forward.cpp
    tests/support/qwen3_vocabulary.cpp tests/support/huggingface_files.cpp)
  target_link_libraries(scripted_server PRIVATE tq_server tq_model CLI11::CLI11 doctest::doctest)
  tq_compile_fast(scripted_server 0)
  target_compile_definitions(scripted_server PRIVATE TQ_SOURCE_DIR="${CMAKE_SOURCE_DIR}" DOCTEST_CONFIG_DISABLE)
  # tq_npm_test(NAME DIRECTORY PROGRAMS...)
  function(tq_npm_test name directory)
    tq_test(${name} "" ${CMAKE_SOURCE_DIR}/tests/clients/run ${CMAKE_SOURCE_DIR}/${directory} ${CMAKE_BINARY_DIR}/${name}
      $<TARGET_FILE:scripted_server> ${ARGN})
  endfunction()
  tq_npm_test(clients tests/clients)
  tq_npm_test(agents tests/clients/agents)
  set_property(TEST agents APPEND PROPERTY ENVIRONMENT TQ_RUN=$<TARGET_FILE:tq-run>)
  tq_npm_test(page tests/page chromium)
  # Python's, each with what pip installs for it alone: some pin what others refuse.
  foreach(client ollama openai anthropic litellm langchain instructor pydantic_ai lm_eval llm aider)
    tq_test(python_${client} "" ${CMAKE_SOURCE_DIR}/tests/clients/python/run ${client}_client ${CMAKE_BINARY_DIR}/python_clients
      $<TARGET_FILE:scripted_server>)
  endforeach()
endif()
