# Read by cpack before each generator: the time stamps in packages are those of the commit, unless SOURCE_DATE_EPOCH is set.
if(NOT DEFINED ENV{SOURCE_DATE_EPOCH})
  include(${CPACK_TQ_SOURCE}/tools/commit.cmake)
  tq_find_commit(${CPACK_TQ_SOURCE})
  if(TQ_FOUND_TIME)
    set(ENV{SOURCE_DATE_EPOCH} ${TQ_FOUND_TIME})
  endif()
endif()
