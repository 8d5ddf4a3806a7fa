# tests/fuzz/NAME_fuzz.cpp is one libFuzzer program each; tests/fuzz/run builds them with sanitizers everywhere, and runs them.
# The parts of model/gpu that need no kernels, whose compilation takes longer than fuzzing does.
add_library(tq_fuzz_gpu STATIC EXCLUDE_FROM_ALL tests/fuzz/no_variants.cpp model/gpu/cache.cpp model/gpu/states.cpp model/gpu/tuning.cpp
  model/gpu/tuning_fields.cpp model/gpu/tuning_file.cpp)
target_link_libraries(tq_fuzz_gpu PUBLIC tq_runtime tq_model)
target_compile_definitions(tq_fuzz_gpu PUBLIC TQ_COOPERATIVE_MATRIX=1) # as for tq_shaders, where the compiler supports them

file(GLOB fuzz_sources CONFIGURE_DEPENDS tests/fuzz/*_fuzz.cpp)
add_custom_target(fuzz)
foreach(source ${fuzz_sources})
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} EXCLUDE_FROM_ALL ${source})
  target_link_libraries(${name} PRIVATE tq_fuzz_gpu tq_quality tq_hub tq_model)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  add_dependencies(fuzz ${name})
endforeach()

# Their initial inputs.
add_executable(make_fuzz_corpus EXCLUDE_FROM_ALL tests/fuzz/make_fuzz_corpus.cpp tests/support/huggingface_files.cpp)
target_link_libraries(make_fuzz_corpus PRIVATE tq_fuzz_gpu tq_model)
target_compile_definitions(make_fuzz_corpus PRIVATE TQ_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
add_dependencies(fuzz make_fuzz_corpus)
