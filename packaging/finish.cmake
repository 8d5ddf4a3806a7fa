# Run by cpack after a package was made: a .tar.gz is packed once more, by GNU tar, as cpack's has its files in the order of the file
# system, and the name of who packed it.
execute_process(COMMAND tar --version OUTPUT_VARIABLE tar_version ERROR_QUIET)
if(NOT CPACK_GENERATOR STREQUAL "TGZ" OR NOT tar_version MATCHES "GNU tar" OR NOT DEFINED ENV{SOURCE_DATE_EPOCH})
  return()
endif()
foreach(package ${CPACK_PACKAGE_FILES})
  get_filename_component(directory ${CPACK_TEMPORARY_DIRECTORY} DIRECTORY)
  get_filename_component(name ${CPACK_TEMPORARY_DIRECTORY} NAME)
  execute_process(COMMAND tar --sort=name --format=ustar --owner=0 --group=0 --numeric-owner -C ${directory} -cf - ${name} COMMAND gzip -9n
    OUTPUT_FILE ${package} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
