# Dry runs on GPUs that are not there, where tests/compiler-lab/get has unpacked the compiler lab: the whole program under validation
# and synchronization validation, with that vendor's compiler, limits and features. Nothing is actually computed.
function(tq_lab_test name gpu)
  add_test(NAME lab-${name}@${gpu} COMMAND ${CMAKE_SOURCE_DIR}/tests/compiler-lab/with-gpu ${gpu} ${ARGN})
  set_tests_properties(lab-${name}@${gpu} PROPERTIES TIMEOUT 600 LABELS device ENVIRONMENT "TQ_VALIDATE=1;XDG_CACHE_HOME=${CMAKE_BINARY_DIR}/lab-cache")
endfunction()

if(EXISTS ${CMAKE_SOURCE_DIR}/build/compiler-lab/complete AND NOT TQ_SANITIZE)
  foreach(gpu intel:dg2 nvidia:176 adreno:740 apple amd:navi31)
    # More tokens than the first capacity of the cache: it grows, and passes are recorded anew.
    tq_lab_test(generate ${gpu} $<TARGET_FILE:tq-run> generate --device 0 -f ${CMAKE_SOURCE_DIR}/CMakePresets.json -c 2048 -b 256 -n 900)
  endforeach()
  # These compute: a part of the rows of cooperative matrices, which no other driver here runs, and whole models with them.
  tq_lab_test(matrices lavapipe $<TARGET_FILE:tq-run> conformance --device 0 --filter matrices --shard 1/8 --timeout 300)
  tq_lab_test(golden lavapipe $<TARGET_FILE:tests-model-gpu> --source-file=*gpu_golden_test.cpp "--test-case=the device gives*")
  set_property(TEST lab-golden@lavapipe APPEND PROPERTY ENVIRONMENT TQ_DEVICE_PROFILE=gpu)
else()
  message(STATUS "Tests: no dry runs on other vendors' GPUs (tests/compiler-lab/get unpacks their compilers)")
endif()
