# Run by cpack after a package was made: it is packed once more by GNU tar, by dpkg-deb or by packaging/zip, as cpack's has its files in
# the order of the file system, and the name or the umask of who packed it.
if(NOT DEFINED ENV{SOURCE_DATE_EPOCH})
  return()
endif()
foreach(package ${CPACK_PACKAGE_FILES})
  if(CPACK_GENERATOR STREQUAL "DEB")
    set(unpacked ${package}.unpacked)
    execute_process(COMMAND dpkg-deb -R ${package} ${unpacked} COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND chmod -R u=rwX,go=rX ${unpacked} COMMAND_ERROR_IS_FATAL ANY)
    # One thread: several would cut the data into other blocks.
    execute_process(COMMAND dpkg-deb --root-owner-group -Zxz --threads-max=1 --build ${unpacked} ${package}
      OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
    file(REMOVE_RECURSE ${unpacked})
    continue()
  endif()
  if(CPACK_GENERATOR STREQUAL "ZIP")
    find_program(PYTHON3 python3)
    if(PYTHON3)
      execute_process(COMMAND ${PYTHON3} ${CPACK_TQ_SOURCE}/packaging/zip ${CPACK_TEMPORARY_DIRECTORY} ${package}
        COMMAND_ERROR_IS_FATAL ANY)
    else()
      message(WARNING "There is no python3 here to pack it again with: another build of the same commit makes other bytes.")
    endif()
    continue()
  endif()
  execute_process(COMMAND tar --version OUTPUT_VARIABLE tar_version ERROR_QUIET)
  if(CPACK_GENERATOR STREQUAL "TGZ" AND tar_version MATCHES "GNU tar")
    get_filename_component(directory ${CPACK_TEMPORARY_DIRECTORY} DIRECTORY)
    get_filename_component(name ${CPACK_TEMPORARY_DIRECTORY} NAME)
    execute_process(COMMAND tar --sort=name --format=ustar --owner=0 --group=0 --numeric-owner -C ${directory} -cf - ${name}
      COMMAND gzip -9n OUTPUT_FILE ${package} COMMAND_ERROR_IS_FATAL ANY)
  endif()
endforeach()
