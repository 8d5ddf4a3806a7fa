# Tests that take turns: .ci/run leaves out those of other days (labels turn-1, Monday, to turn-7); everybody else runs all. If a test takes
# more than a minute alone on two fast cores, the reason is here.

# tq_turn(DAY NAMES): gives the tests the label of that day. NAMES: a regular expression of names, with or without "@" and a driver. Each
# test of a turn runs once a week: on Sundays .ci/run leaves the label cli out.
function(tq_turn day names)
  if(NOT day MATCHES "^[1-7]$")
    message(FATAL_ERROR "a turn is a day from 1, Monday, to 7, not ${day}")
  endif()
  get_property(tests DIRECTORY PROPERTY TESTS)
  foreach(test ${tests})
    if(test MATCHES "^(${names})(@.*)?$")
      get_property(labels TEST ${test} PROPERTY LABELS)
      if(labels MATCHES "turn-")
        message(FATAL_ERROR "${test} has two turns: ${labels};turn-${day}")
      elseif(day EQUAL 7 AND "cli" IN_LIST labels)
        message(FATAL_ERROR "${test} has the label cli, which does not run on Sundays: give it another day")
      endif()
      set_property(TEST ${test} APPEND PROPERTY LABELS turn-${day})
    endif()
  endforeach()
endfunction()

# All rows of conformance on lavapipe, all kernels through AMD's compiler, and clang-tidy on all sources are minutes each: they are in
# parts, one a day.
foreach(day RANGE 1 7)
  tq_turn(${day} "conformance-${day}|shaders_check-${day}|check_tidy-${day}")
endforeach()
# Conformance on a driver of another width, of another maker, or of lesser capabilities takes up to a minute for each.
tq_turn(1 "conformance@lavapipe-128")
tq_turn(2 "conformance@lavapipe-512")
tq_turn(3 "conformance@swiftshader")
tq_turn(4 "conformance-part")
tq_turn(5 "conformance-kv_(append|decode)")
tq_turn(6 "conformance-spec-minimum")
tq_turn(7 "conformance-mobile")

tq_turn(1 "fault_(sweep|serve)_test|soak-deterministic|serve_soak-hybrid")
# Every kind of cache and model, divided over two devices in each way.
tq_turn(2 "gpu_split_test|soak@lavapipe|gpu_sizes_test|gpu_hybrid_larger_set_test@lavapipe|fleet_ranks|cpu_experts_test|cli_(quantize|split)_test")
tq_turn(2 "gpu_(architectures_)?larger_set_test@lavapipe|cli_chat_test@swiftshader")
# Three minutes, most of which it waits: drivers hang until their time is over.
tq_turn(3 "fault_proof_test|gpu_shape_test|gpu_(architectures|hybrid)_larger_set_test@lavapipe-128|gpu_mtp_test|plot_test|lab-(golden|matrices)")
# Each kind of span, and conversations, in each kind of cache.
tq_turn(4 "gpu_spans_test|prefix_session_test|cpu_spans_test-avx(2|-vnni)|gpu_architectures_larger_set_test@swiftshader|fault_lost_test|ablation_test")
# Three commands with and without a fault in a kernel, each of which measures before it refuses.
tq_turn(5 "broken_kernels_test|serve_soak|cli_bench_test|gpu_hybrid_larger_set_test@swiftshader")
# A context of a million tokens is filled; the search of bench --tune tries every kernel.
tq_turn(6 "gpu_million_test|cli_bench_tune_test|gpu_golden_test@swiftshader|fleet_(replicas|store|network)")
# Some of PyPI's clients are 100 to 600 MB to install, or slow to start.
tq_turn(1 "python_openai")
tq_turn(2 "python_(litellm|langchain|anthropic)")
tq_turn(3 "python_(lm_eval|llm)")
tq_turn(4 "python_(instructor|pydantic_ai)")
tq_turn(5 "python_ollama")
tq_turn(6 "python_aider")
# Conversations on every kind of cache, on a device; other drivers; the page in a browser.
tq_turn(7 "gpu_(prefix|conditioning|window)_test|gpu_architectures_test@swiftshader|gpu_golden_test@lavapipe-spec-minimum|page")
tq_turn(7 "gpu_(architectures|hybrid)_larger_set_test@lavapipe-512|gpu_router_larger_set_test@swiftshader|gpu_speculation_test")
tq_turn(7 "cli_(ablate|calibrate)_test|packages|fleet_edge")
