# Installs the systemd unit, which names the program where it is installed. An archive can be unpacked anywhere: there the unit keeps
# /usr/local/bin.
file(READ ${TQ_SERVICE} service)
if(NOT CMAKE_INSTALL_PREFIX MATCHES "_CPack_Packages")
  string(REPLACE /usr/local/bin/ ${CMAKE_INSTALL_PREFIX}/${TQ_BIN_DIRECTORY}/ service "${service}")
endif()
set(unit $ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/lib/systemd/system/tq-run.service)
message(STATUS "Installing: ${unit}")
file(WRITE ${unit} "${service}")
