# Writes the list of dependencies as SPDX 2.3 (JSON):
# cmake -DSOURCE=... -DVERSION=... -DCOMMIT=... -DDEPENDENCIES=... -DCOMPILER=... -DOUTPUT=... -P sbom.cmake
# A line of DEPENDENCIES is NAME|RELATION|LICENCE|VERSION|ADDRESS|SHA256 (third_party/dependencies.cmake).
cmake_policy(VERSION 3.25)
include(${SOURCE}/tools/commit.cmake)
tq_find_commit(${SOURCE})
if(NOT COMMIT)
  set(COMMIT "${TQ_FOUND_COMMIT}")
endif()
if(NOT DEFINED ENV{SOURCE_DATE_EPOCH} AND TQ_FOUND_TIME)
  set(ENV{SOURCE_DATE_EPOCH} ${TQ_FOUND_TIME})
endif()
string(TIMESTAMP created "%Y-%m-%dT%H:%M:%SZ" UTC)

# The package NAME as JSON, in `package`.
function(make_package name version licence address sha256)
  set(location NOASSERTION)
  if(address MATCHES "^https:")
    set(location ${address})
  endif()
  set(more "")
  if(version)
    string(APPEND more ",\n      \"versionInfo\": \"${version}\"")
  endif()
  if(sha256)
    string(APPEND more ",\n      \"checksums\": [{\"algorithm\": \"SHA256\", \"checksumValue\": \"${sha256}\"}]")
  endif()
  if(location STREQUAL "NOASSERTION" AND address)
    string(APPEND more ",\n      \"comment\": \"${address}\"")
  endif()
  string(REGEX REPLACE "[^A-Za-z0-9.-]" "-" id "${name}")
  set(package "    {
      \"name\": \"${name}\",
      \"SPDXID\": \"SPDXRef-${id}\",
      \"downloadLocation\": \"${location}\",
      \"filesAnalyzed\": false,
      \"licenseConcluded\": \"${licence}\",
      \"licenseDeclared\": \"${licence}\",
      \"copyrightText\": \"NOASSERTION\"${more}
    }" PARENT_SCOPE)
  set(id "SPDXRef-${id}" PARENT_SCOPE)
endfunction()

make_package(tq-run "${VERSION}" Apache-2.0 "commit ${COMMIT}, built with ${COMPILER}" "")
set(packages "${package}")
set(relations "    {\"spdxElementId\": \"SPDXRef-DOCUMENT\", \"relationshipType\": \"DESCRIBES\", \"relatedSpdxElement\": \"SPDXRef-tq-run\"}")
file(STRINGS ${DEPENDENCIES} lines)
foreach(line ${lines})
  string(REPLACE "|" ";" fields "${line}")
  list(GET fields 0 name)
  list(GET fields 1 relation)
  list(GET fields 2 licence)
  list(GET fields 3 version)
  list(GET fields 4 address)
  list(GET fields 5 sha256)
  make_package(${name} "${version}" "${licence}" "${address}" "${sha256}")
  string(APPEND packages ",\n${package}")
  if(relation STREQUAL "contained")
    set(pair "\"SPDXRef-tq-run\", \"relationshipType\": \"CONTAINS\", \"relatedSpdxElement\": \"${id}\"")
  elseif(relation STREQUAL "linked")
    set(pair "\"SPDXRef-tq-run\", \"relationshipType\": \"DYNAMIC_LINK\", \"relatedSpdxElement\": \"${id}\"")
  else()
    set(pair "\"${id}\", \"relationshipType\": \"BUILD_TOOL_OF\", \"relatedSpdxElement\": \"SPDXRef-tq-run\"")
  endif()
  string(APPEND relations ",\n    {\"spdxElementId\": ${pair}}")
endforeach()
string(SHA256 digest "${VERSION} ${COMMIT}\n${packages}")
file(WRITE ${OUTPUT} "{
  \"spdxVersion\": \"SPDX-2.3\",
  \"dataLicense\": \"CC0-1.0\",
  \"SPDXID\": \"SPDXRef-DOCUMENT\",
  \"name\": \"tq-run-${VERSION}\",
  \"documentNamespace\": \"urn:sha256:${digest}\",
  \"creationInfo\": {\"created\": \"${created}\", \"creators\": [\"Tool: tq-run-packaging-sbom.cmake\"]},
  \"packages\": [\n${packages}\n  ],
  \"relationships\": [\n${relations}\n  ]\n}\n")
