# tq_find_commit(SOURCE): sets TQ_FOUND_COMMIT ("8b235b5ca", with "-dirty" where files differ), TQ_FOUND_TIME (seconds since 1970) and
# TQ_FOUND_DATE: from git, else from tools/archived-commit, which git-archive fills in; empty where neither knows.
function(tq_find_commit source)
  set(commit "")
  set(time "")
  set(date "")
  find_program(git git)
  if(git)
    # An unpacked archive inside somebody's repository is not of that repository's commit.
    execute_process(COMMAND ${git} rev-parse --show-prefix WORKING_DIRECTORY ${source}
      RESULT_VARIABLE status OUTPUT_VARIABLE prefix OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(status EQUAL 0 AND prefix STREQUAL "")
      execute_process(COMMAND ${git} describe --always --dirty --abbrev=9 --exclude=* WORKING_DIRECTORY ${source}
        OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
      execute_process(COMMAND ${git} log -1 --format=%ct --no-show-signature WORKING_DIRECTORY ${source}
        OUTPUT_VARIABLE time OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
      execute_process(COMMAND ${git} log -1 --format=%cs --no-show-signature WORKING_DIRECTORY ${source}
        OUTPUT_VARIABLE date OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    endif()
  endif()
  if(NOT commit)
    file(STRINGS ${source}/tools/archived-commit line LIMIT_COUNT 1)
    if(line MATCHES "^([0-9a-f]+) ([0-9]+) ([-0-9]+)$")
      set(time ${CMAKE_MATCH_2})
      set(date ${CMAKE_MATCH_3})
      string(SUBSTRING ${CMAKE_MATCH_1} 0 9 commit)
    endif()
  endif()
  set(TQ_FOUND_COMMIT "${commit}" PARENT_SCOPE)
  set(TQ_FOUND_TIME "${time}" PARENT_SCOPE)
  set(TQ_FOUND_DATE "${date}" PARENT_SCOPE)
endfunction()
