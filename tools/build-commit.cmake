# Writes the source file with the commit that is built: cmake -DSOURCE=... -DOUTPUT=... [-DCOMMIT=...] -P build-commit.cmake
# Run at each build; the file changes, and is compiled, only when the commit does.
set(commit "${COMMIT}")
find_program(git git)
if(NOT commit AND git)
  # An unpacked archive inside somebody's repository is not of that repository's commit.
  execute_process(COMMAND ${git} rev-parse --show-prefix WORKING_DIRECTORY ${SOURCE}
    RESULT_VARIABLE status OUTPUT_VARIABLE prefix OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(status EQUAL 0 AND prefix STREQUAL "")
    execute_process(COMMAND ${git} describe --always --dirty --abbrev=9 --exclude=* WORKING_DIRECTORY ${SOURCE}
      OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
endif()
if(NOT commit)
  set(commit unknown)
endif()
set(text "#include \"tools/tq-run/build.h\"\n\nnamespace tq {\nconst char* build_commit() { return \"${commit}\"; }\n}\n")
set(written)
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} written)
endif()
if(NOT written STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
