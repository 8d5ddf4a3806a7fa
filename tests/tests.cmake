# The tests of a directory are one doctest program, which is run once for each of its files: NAME_test.cpp is the test NAME_test. One
# that includes runtime/ or model/gpu/ is run once per Vulkan driver on this machine, as NAME_test@DRIVER, under the validation layer
# where that is installed; one that does not, but runs tq-run, on the first driver and the GPUs'; any other one is run once, as
# NAME_test. The lists below name the exceptions.

set(TQ_TESTS "" CACHE STRING "Programs of tests to build and run, as a regular expression, such as ^tests-model; empty: all tests")

# Prefixes under which the Vulkan loader looks for drivers and layers.
set(vulkan_prefixes /usr/share/vulkan /usr/local/share/vulkan /etc/vulkan /opt/homebrew/share/vulkan /opt/homebrew/etc/vulkan)
list(TRANSFORM vulkan_prefixes APPEND /icd.d/*.json OUTPUT_VARIABLE driver_patterns)
list(TRANSFORM vulkan_prefixes APPEND /explicit_layer.d/VkLayer_khronos_validation.json OUTPUT_VARIABLE layer_patterns)
file(GLOB driver_files CONFIGURE_DEPENDS ${driver_patterns})
file(GLOB validation_layer CONFIGURE_DEPENDS ${layer_patterns})
file(GLOB swiftshader_file CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/build/swiftshader/*.json) # from tests/get-swiftshader
file(GLOB new_mesa_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/build/mesa/*.json)         # from tests/get-mesa
file(GLOB gpu_nodes CONFIGURE_DEPENDS /dev/dri/renderD* /dev/nvidia0 /dev/dxg)

set(validation_environment)
if(validation_layer)
  list(APPEND validation_environment TQ_VALIDATE=1)
  message(STATUS "Tests: validation with ${validation_layer}")
else()
  message(STATUS "Tests: no Vulkan validation (VK_LAYER_KHRONOS_validation is not installed)")
endif()

# tq_environment(NAME FILE VARIABLES...): the environment that makes FILE the only driver, and more VARIABLES.
macro(tq_environment name file)
  set(environment_${name} ${validation_environment} VK_DRIVER_FILES=${file} VK_ICD_FILENAMES=${file} ${ARGN})
  if(TQ_SANITIZE) # the drivers' own leaks are not ours to report
    list(APPEND environment_${name} ASAN_OPTIONS=detect_leaks=0)
  endif()
endmacro()

# tq_driver(NAME FILE VARIABLES...): all device tests run on it.
set(drivers)
set(gpu_drivers)
set(new_lavapipe)
set(profile_drivers)
set(minimum_driver)
macro(tq_driver name file)
  list(APPEND drivers ${name})
  tq_environment(${name} ${file} ${ARGN})
endmacro()

set(new_mesa ${CMAKE_SOURCE_DIR}/build/mesa)
set(radv_file ${driver_files})
list(FILTER radv_file INCLUDE REGEX "/radeon_icd")
set(lavapipe_file ${driver_files})
list(FILTER lavapipe_file INCLUDE REGEX "/lvp_icd")
set(gpu_files ${driver_files})
list(FILTER gpu_files EXCLUDE REGEX "/(lvp_icd|vk_swiftshader)")
if(lavapipe_file)
  list(GET lavapipe_file 0 lavapipe_file)
  tq_driver(lavapipe ${lavapipe_file})
  # Subgroups of 4 and 16 invocations; its own choice is 8 on most CPUs.
  tq_driver(lavapipe-128 ${lavapipe_file} LP_NATIVE_VECTOR_WIDTH=128)
  tq_driver(lavapipe-512 ${lavapipe_file} LP_NATIVE_VECTOR_WIDTH=512)
  # Lesser devices, as device profiles: for the tests in profile_tests.
  foreach(profile spec-minimum mobile)
    list(APPEND profile_drivers lavapipe-${profile})
    if(profile STREQUAL "spec-minimum")
      set(minimum_driver lavapipe-${profile})
    endif()
    tq_environment(lavapipe-${profile} ${lavapipe_file} TQ_DEVICE_PROFILE=${profile})
  endforeach()
else()
  message(STATUS "Tests: not on lavapipe (no lvp_icd*.json: Debian has it in mesa-vulkan-drivers)")
endif()
if(new_mesa_files)
  # For the tests in new_lavapipe_tests only: it compiles a kernel several times as slowly as Debian 12's own.
  tq_environment(lavapipe-new ${new_mesa}/lvp_icd.json LD_LIBRARY_PATH=${new_mesa})
  set(new_lavapipe lavapipe-new)
else()
  message(STATUS "Tests: not on a newer lavapipe and RADV (tests/get-mesa fetches them)")
endif()
if(swiftshader_file)
  tq_driver(swiftshader ${swiftshader_file})
else()
  message(STATUS "Tests: not on SwiftShader (tests/get-swiftshader fetches it)")
endif()
foreach(file ${gpu_files})
  get_filename_component(name ${file} NAME_WE)
  string(REPLACE "_icd" "" name ${name})
  if(gpu_nodes OR APPLE)
    tq_driver(${name} ${file})
    list(APPEND gpu_drivers ${name})
  else()
    message(STATUS "Tests: not on ${name} (no GPU: neither /dev/dri/renderD* nor /dev/nvidia0)")
  endif()
endforeach()
message(STATUS "Tests: on ${drivers}")

# RADV compiles for GPUs that are not there, each family a driver of its own that has no memory. Without its disk cache: it must
# compile.
set(compile_drivers)
function(tq_compile_drivers suffix file families)
  foreach(family ${families})
    set(name radv-${family}${suffix})
    tq_environment(${name} ${file} RADV_FORCE_FAMILY=${family} MESA_SHADER_CACHE_DISABLE=true ${ARGN})
    set(environment_${name} ${environment_${name}} PARENT_SCOPE)
    list(APPEND compile_drivers ${name})
  endforeach()
  set(compile_drivers ${compile_drivers} PARENT_SCOPE)
endfunction()
if(radv_file)
  list(GET radv_file 0 radv_file)
  tq_compile_drivers("" ${radv_file} "navi21")
else()
  message(STATUS "Tests: no registers and spills of AMD's GPUs (no radeon_icd*.json: Debian has it in mesa-vulkan-drivers)")
endif()
if(new_mesa_files)
  tq_compile_drivers("-new" ${new_mesa}/radeon_icd.json "navi31" LD_LIBRARY_PATH=${new_mesa})
endif()

include(tests/fault_layer/fault_layer.cmake)

set(CMAKE_UNITY_BUILD OFF) # files of tests have helpers of the same names

# tq_test_program(SOURCE NAME): sets the name of the program of its directory, such as tests-model-kv.
function(tq_test_program source name)
  get_filename_component(directory ${source} DIRECTORY)
  file(RELATIVE_PATH directory ${CMAKE_SOURCE_DIR} ${directory})
  string(REPLACE "/" "-" directory ${directory})
  set(${name} ${directory} PARENT_SCOPE)
endfunction()

# Sources shared by several tests, in two libraries, so that tests of what needs no device build without kernels, server and commands; and
# make_*.cpp: programs that write test data, run by hand.
file(GLOB test_support CONFIGURE_DEPENDS tests/support/*.cpp)
file(GLOB_RECURSE test_sources CONFIGURE_DEPENDS tests/*_test.cpp)
if(TQ_TESTS)
  set(wanted)
  foreach(source ${test_sources})
    tq_test_program(${source} program)
    if(program MATCHES "${TQ_TESTS}")
      list(APPEND wanted ${source})
    endif()
  endforeach()
  set(test_sources ${wanted})
endif()
set(test_tools ${test_support})
list(FILTER test_tools INCLUDE REGEX "/make_[a-z_]+\\.cpp$")
list(REMOVE_ITEM test_support ${test_tools} ${CMAKE_SOURCE_DIR}/tests/support/doctest_main.cpp)
set(test_devices ${test_support})
list(FILTER test_devices INCLUDE REGEX "/(device_kernels|golden_device)\\.cpp$")
list(REMOVE_ITEM test_support ${test_devices})
add_library(tq_test_support STATIC EXCLUDE_FROM_ALL ${test_support})
target_link_libraries(tq_test_support PUBLIC tq_quality tq_conformance_vectors tq_reference tq_cpu tq_model tq_ranks tq_store tq_hub doctest::doctest)
add_library(tq_test_devices STATIC EXCLUDE_FROM_ALL ${test_devices})
target_link_libraries(tq_test_devices PUBLIC tq_test_support tq_server tq_conformance tq_gpu tq_test_shaders)
tq_compile_fast(tq_test_support 1)
tq_compile_fast(tq_test_devices 1)
target_compile_definitions(tq_test_devices PRIVATE TQ_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
target_compile_definitions(tq_test_support PRIVATE TQ_SOURCE_DIR="${CMAKE_SOURCE_DIR}" TQ_FAULT_LAYER="${TQ_FAULT_LAYER}"
  TQ_SHADERS="${CMAKE_BINARY_DIR}/tq_shaders" TQ_RUN="${CMAKE_BINARY_DIR}/tq-run${CMAKE_EXECUTABLE_SUFFIX}")
if(TQ_FAULT_LAYER)
  add_dependencies(tq_test_devices tq_fault_layer tq_crashing_driver)
else() # the fault layer is their subject
  list(FILTER test_sources EXCLUDE REGEX "/(broken_kernels|fault_[a-z_]+)_test\\.cpp$")
endif()
if(NOT WIN32)
  list(FILTER test_sources EXCLUDE REGEX "/tests/windows/")
endif()
if(WIN32) # they test signals and terminals, run scripts of sh, or have POSIX's sockets
  list(FILTER test_sources EXCLUDE REGEX "/(cli_(faults|terminal|serve|launch|shared|prefill)|fault_serve|http_(address|server|tls)|redis_store|runner|server)_test\\.cpp$")
endif()
foreach(source ${test_tools})
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} EXCLUDE_FROM_ALL ${source})
  tq_compile_fast(${name} 1)
  target_link_libraries(${name} PRIVATE tq_test_support CLI11::CLI11)
endforeach()

# Tests that take a quarter of a minute or more.
set(slow_tests "^(ablation|fault_sweep|fault_proof|broken_kernels|cli_bench_tune|cli_bench|cli_ablate|cli_calibrate|cli_needle|hub_download)_test")

# tq_test(NAME DRIVER COMMAND...), with one of the labels quick (needs no device), device, cli and slow: DRIVER is one of ${drivers},
# ${new_lavapipe}, ${profile_drivers} and ${compile_drivers}, or none.
function(tq_test name driver)
  set(environment)
  if(driver)
    set(environment ${environment_${driver}})
    set(name ${name}@${driver})
  endif()
  if(driver IN_LIST gpu_drivers AND NOT name MATCHES "^(conformance|gpu_)") # the others compare at fp32's precision: no products of fp16
    list(APPEND environment TQ_DEVICE_PROFILE=no-fp16)
  endif()
  add_test(NAME ${name} COMMAND ${ARGN})
  if(name MATCHES "^(conformance|shaders_check|check_tidy|fleet_(replicas|store|network|ranks))|million|${slow_tests}")
    set(label slow)
  elseif(name MATCHES "^cli_")
    set(label cli)
  elseif(driver)
    set(label device)
  else()
    set(label quick)
  endif()
  list(APPEND environment TQ_CACHE_DISK=0) # the prefix cache of the user is not the tests'
  if(NOT name MATCHES "^fault_proof_test") # a check before each command would test the same again and again
    list(APPEND environment TQ_PROVE=0)
  endif()
  set_tests_properties(${name} PROPERTIES ENVIRONMENT "${environment}" TIMEOUT 1800 LABELS ${label} SKIP_RETURN_CODE 77)
  if(name MATCHES "^(conformance|shaders_check|broken_kernels_test|cli_bench_tune_test)|million") # the longest start first
    set_tests_properties(${name} PROPERTIES COST 1000)
  elseif(driver STREQUAL "swiftshader")
    set_tests_properties(${name} PROPERTIES COST 100)
  endif()
  if(driver IN_LIST gpu_drivers) # a driver may be installed for a GPU that this machine does not have
    set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "Vulkan found no device|no Vulkan driver was found")
  endif()
endfunction()

# A test that this machine cannot run is reported as skipped, not left out.
function(tq_skipped name why)
  add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -E echo "skipped: ${why}")
  set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "^skipped: " LABELS device)
endfunction()

# What runs where: a property is tested on the drivers that can tell it apart. Conformance compares every kernel with its reference, so
# that the tests of whole models need not repeat that on each.
#
# Lavapipe and GPUs have all of conformance's rows. SwiftShader, another compiler, has an eighth of them; lavapipe's other widths a part of those
# of the kernels for subgroups (the greater one also a part of all, for its workgroups), the profiles a part of all.
set(rows_swiftshader --shard 1/8)
set(rows_lavapipe-128 --filter "of a GPU" --shard 1/3)
set(rows_lavapipe-512 --filter "of a GPU" --shard 1/4)
set(rows_spec-minimum --shard 3/8)
set(rows_mobile --shard 1/8)
set(rows_lavapipe-new --shard 1/4)

# Tests of commands that run on every driver, not on the first alone.
set(everywhere_tests cli_chat_test)
# Tests that run on the first driver and on GPUs: what they test is host code, or a whole model whose kernels have their rows.
set(host_tests agreement_test fault_layer_test fault_proof_test device_layout_test gpu_conditioning_test gpu_demo_test gpu_hybrid_test gpu_spans_test gpu_larger_set_test gpu_million_test
  gpu_nonfinite_test gpu_pace_test gpu_prefix_test gpu_prompt_cache_test gpu_sampling_test gpu_scheduler_test gpu_shape_test gpu_sizes_test gpu_speculation_test gpu_split_test
  gpu_window_test tuning_test)
# Tests that run on lavapipe's other widths: those that see the size of a subgroup.
set(width_tests gpu_architectures_larger_set_test gpu_codec_test gpu_hybrid_larger_set_test recorder_test runtime_test subgroup_size_test)
# Tests that run on each profile, and on the lowest limits only.
set(profile_tests recorder_test)
set(minimum_tests gpu_golden_test)
set(compile_tests statistics_test)
# Tests of the CPU path that run once more with lesser instruction sets, as NAME-SET.
set(instruction_tests cpu_golden_test cpu_spans_test)
set(instruction_sets avx2 avx-vnni)
set(new_lavapipe_tests runtime_test recorder_test device_profile_test statistics_test cli_shaders_test gpu_codec_test)
# tq_source(SOURCE NAME PROGRAM): compiles a file of tests into its directory's program, and runs it where it belongs.
function(tq_source source name program)
  target_sources(${program} PRIVATE ${source})
  get_filename_component(directory ${source} DIRECTORY)
  get_filename_component(directory ${directory} NAME)
  set(only --source-file=*${directory}?${name}.cpp) # "?": the system's slash
  file(STRINGS ${source} names_paths REGEX "TQ_(SOURCE_DIR|RUN|GLSLANG|SHADERS)([^A-Z_]|$)|tests/(support/(golden|hybrid_golden|embeddings|hub_server|test_data)|tools/tq-run/serving)\\.h")
  if(names_paths) # the others are the same in every checkout, for a compiler cache
    set_property(SOURCE ${source} PROPERTY COMPILE_DEFINITIONS TQ_SOURCE_DIR="${CMAKE_SOURCE_DIR}" TQ_GLSLANG="${GLSLANG}"
      TQ_SHADERS="${CMAKE_BINARY_DIR}/tq_shaders" TQ_RUN="${CMAKE_BINARY_DIR}/tq-run${CMAKE_EXECUTABLE_SUFFIX}"
      $<$<BOOL:${LIBEDIT_FOUND}>:TQ_HAS_LINE_EDITOR>)
  endif()
  file(STRINGS ${source} reaches_device REGEX "#include \"(runtime|model/gpu)/")
  file(STRINGS ${source} runs_commands REGEX "TQ_RUN[^A-Z_]|tq_run\\(|tq-run/serving\\.h")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
  set(name_drivers "")
  if(runs_commands)
    add_dependencies(tq_tests tq-run)
  endif()
  if(reaches_device OR (runs_commands AND drivers))
    set(name_drivers ${drivers})
    if(drivers AND (name IN_LIST host_tests OR (NOT reaches_device AND NOT name IN_LIST everywhere_tests)))
      list(GET drivers 0 first_driver)
      set(name_drivers ${first_driver} ${gpu_drivers})
      list(REMOVE_DUPLICATES name_drivers)
    endif()
    if(NOT name IN_LIST width_tests)
      list(REMOVE_ITEM name_drivers lavapipe-128 lavapipe-512)
    endif()
    if(name IN_LIST profile_tests)
      list(APPEND name_drivers ${profile_drivers})
    endif()
    if(name IN_LIST minimum_tests)
      list(APPEND name_drivers ${minimum_driver})
    endif()
    if(name IN_LIST new_lavapipe_tests)
      list(APPEND name_drivers ${new_lavapipe})
    endif()
    if(name IN_LIST compile_tests)
      list(APPEND name_drivers ${compile_drivers})
    endif()
  else()
    tq_test(${name} "" ${program} ${only})
    if(name IN_LIST instruction_tests)
      foreach(set ${instruction_sets})
        tq_test(${name}-${set} "" ${program} ${only})
        set_property(TEST ${name}-${set} APPEND PROPERTY ENVIRONMENT TQ_CPU=${set})
      endforeach()
    endif()
  endif()
  if(reaches_device AND NOT drivers)
    tq_skipped(${name} "no Vulkan driver here")
  endif()
  foreach(driver ${name_drivers})
    tq_test(${name} ${driver} ${program} ${only})
  endforeach()
endfunction()

add_library(tq_doctest_main OBJECT tests/support/doctest_main.cpp)
target_link_libraries(tq_doctest_main PUBLIC tq_options doctest::doctest)
# What is tested is built as ever. Tests themselves are compiled without optimisation, but for those that spend seconds in their own loops.
set(tests_that_calculate "^tests-(base|model|model-(kv|cpu|gpu|host))$")
set(tests_without_devices "^tests-(base|model|model-[^g].*)$")
add_custom_target(tq_tests) # the programs alone, with what they run
foreach(source ${test_sources})
  get_filename_component(name ${source} NAME_WE)
  tq_test_program(${source} program)
  if(NOT TARGET ${program})
    add_executable(${program})
    add_dependencies(tq_tests ${program})
    target_link_libraries(${program} PRIVATE tq_doctest_main)
    if(program MATCHES "${tests_without_devices}")
      target_link_libraries(${program} PRIVATE tq_test_support)
    else()
      target_link_libraries(${program} PRIVATE tq_test_devices)
    endif()
    if(program MATCHES "${tests_that_calculate}")
      tq_compile_fast(${program} 1)
    else()
      tq_compile_fast(${program} 0)
    endif()
  endif()
  tq_source(${source} ${name} ${program})
endforeach()

# The scripts' own first lines take the first python3 of PATH, too: one that is too old, or a shim without a Python, is as good as none.
find_program(python3 python3)
if(python3)
  execute_process(COMMAND ${python3} -c "import sys; sys.exit(sys.version_info < (3, 8))" RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  if(NOT failed STREQUAL "0")
    message(WARNING "${python3}, the first python3 in PATH, is no Python 3.8 or newer: the tests that need one are left out. "
      "With /usr/bin first in PATH, for example, cmake --fresh finds the system's.")
    set(python3 "")
  endif()
endif()
# Many conversations in processes that are killed, against serial runs.
if(UNIX AND (NOT TQ_TESTS OR "soak" MATCHES "${TQ_TESTS}"))
  file(GLOB soak_sources CONFIGURE_DEPENDS tests/soak/*.cpp)
  add_executable(soak ${soak_sources})
  tq_compile_fast(soak 0)
  add_dependencies(tq_tests soak)
  target_link_libraries(soak PRIVATE tq_test_devices CLI11::CLI11)
  set(short_soak --sequences 16 --kills 5)
  set(soak_length)
  if(TQ_SANITIZE)
    set(soak_length ${short_soak})
  endif()
  tq_test(soak "" soak ${soak_length})
  tq_test(soak-deterministic "" soak --deterministic --type tq3 --seed 2 ${soak_length})
  if(python3)
    add_dependencies(tq_tests tq-run)
    tq_test(serve_soak "" ${CMAKE_SOURCE_DIR}/tests/soak/serve_soak $<TARGET_FILE:tq-run>)
    set_target_properties(make_random_model PROPERTIES EXCLUDE_FROM_ALL FALSE) # a test runs it
    add_dependencies(tq_tests make_random_model)
    tq_test(serve_soak-hybrid "" ${CMAKE_SOURCE_DIR}/tests/soak/serve_soak $<TARGET_FILE:tq-run> --hybrid $<TARGET_FILE:make_random_model>
      --seconds 5)
  endif()
  if(drivers)
    list(GET drivers 0 first_driver)
    foreach(driver ${first_driver} ${gpu_drivers})
      tq_test(soak ${driver} soak --device 0 ${short_soak})
    endforeach()
  endif()
endif()

if(TQ_TESTS)
  return()
endif()

# Checks that no kernel spills registers or uses scratch memory on AMD's GPUs: each variant on one of the families, in three parts per family.
list(LENGTH compile_drivers families)
math(EXPR parts "3 * ${families}")
set(number 0)
foreach(driver ${compile_drivers} ${compile_drivers} ${compile_drivers})
  math(EXPR number "${number} + 1")
  tq_test(shaders_check-${number} ${driver} tq-run shaders --check --shard ${number}/${parts})
  if(driver MATCHES "-new$") # with cooperative matrices, which an old validation layer does not know
    set_property(TEST shaders_check-${number}@${driver} APPEND PROPERTY ENVIRONMENT TQ_VALIDATE=0)
  endif()
endforeach()

# Every kernel against its reference, on each driver, and on lavapipe once more for profiles of lesser devices; on the newer
# lavapipe, which compiles slowly, a part of the codec's, whose bytes must be the same. A software driver may take minutes for a kernel while
# other tests run.
set(patient --timeout 300)
foreach(driver ${drivers})
  if(driver STREQUAL "lavapipe") # all rows, in parts
    foreach(part RANGE 1 7)
      tq_test(conformance-${part} lavapipe tq-run conformance --shard ${part}/7 ${patient})
    endforeach()
  else() # all rows on a GPU
    tq_test(conformance "${driver}" tq-run conformance ${rows_${driver}} ${patient})
  endif()
endforeach()
if("lavapipe-512" IN_LIST drivers)
  tq_test(conformance-part lavapipe-512 tq-run conformance --shard 1/16 ${patient})
endif()
foreach(kernel kv_append kv_decode)
  foreach(driver ${new_lavapipe})
    tq_test(conformance-${kernel} ${driver} tq-run conformance --filter ${kernel} ${rows_${driver}} ${patient})
  endforeach()
endforeach()
if(lavapipe_file)
  foreach(profile spec-minimum mobile)
    tq_test(conformance-${profile} lavapipe tq-run conformance --profile ${profile} ${rows_${profile}} ${patient})
  endforeach()
endif()

# The scripts that measure what caches cost a user's model, and a device.
if(UNIX AND python3)
  tq_test(speed_report "" ${CMAKE_SOURCE_DIR}/tests/tools/speed_report_test)
  set(mpirun)
  if(TARGET tq_mpi)
    set(mpirun ${MPIEXEC_EXECUTABLE})
  endif()
  tq_test(own_report "" ${CMAKE_SOURCE_DIR}/tests/tools/check/quality/own_report ${CMAKE_BINARY_DIR} ${mpirun})
endif()

include(tests/clients/clients.cmake)
include(tests/compiler-lab/lab.cmake)
include(tests/fleet/fleet.cmake)
include(tests/packages/packages.cmake)

if(UNIX)
  tq_test(check_layers "" ${CMAKE_SOURCE_DIR}/tests/check_layers)
  tq_test(check_aggregates "" ${CMAKE_SOURCE_DIR}/tests/check_aggregates)
  tq_test(check_scripts "" ${CMAKE_SOURCE_DIR}/tests/check_scripts)
  tq_test(mutants_apply "" ${CMAKE_SOURCE_DIR}/tests/mutants --list)
  tq_test(quickstart_compilers "" ${CMAKE_SOURCE_DIR}/tests/quickstart_compilers)
  tq_test(check_format "" ${CMAKE_SOURCE_DIR}/tests/check_format)
  if(NOT CMAKE_CROSSCOMPILING)
    foreach(part RANGE 1 7)
      tq_test(check_tidy-${part} "" ${CMAKE_SOURCE_DIR}/tests/check_tidy ${CMAKE_BINARY_DIR} ${part}/7)
    endforeach()
  endif()
endif()

include(tests/turns.cmake)
