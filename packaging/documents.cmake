# Copies the documents into OUTPUT: cmake -DSOURCE=... -DOUTPUT=... -P documents.cmake
# Links to what is not there, outside docs/ and in docs/lab/, become their texts. CHANGELOG.md comes to lie beside the others.
cmake_policy(VERSION 3.25)
file(GLOB documents ${SOURCE}/docs/*.md ${SOURCE}/docs/*.svg ${SOURCE}/CHANGELOG.md)
file(GLOB pictures ${SOURCE}/docs/*.png)
file(MAKE_DIRECTORY ${OUTPUT})
foreach(document ${documents})
  get_filename_component(name ${document} NAME)
  file(READ ${document} text)
  string(REGEX REPLACE "\\[([^]]*)\\]\\((\\.\\./|lab/)[^)]*\\)" "\\1" text "${text}")
  string(REPLACE "](docs/" "](" text "${text}")
  file(WRITE ${OUTPUT}/${name} "${text}")
endforeach()
file(COPY ${pictures} DESTINATION ${OUTPUT} NO_SOURCE_PERMISSIONS)
