# tq_add_shaders(TARGET DIRECTORY NAMESPACE): every DIRECTORY/NAME.comp becomes the constant tq::NAMESPACE::NAME, its SPIR-V and its
# interface, in NAME.gen.h. TARGET is a library named tq_SOMETHING that offers all of them as SOMETHING.gen.h, and as the array
# tq::NAMESPACE::all, in alphabetical order. A kernel that has a line "// once per weight format" becomes NAME_FORMAT for each of these,
# compiled with FORMAT_<format> defined, and the Family NAME of them (runtime/shader.h), in the order of NAMESPACE::weight_formats; one
# with a line "// once more for texels" is compiled a second time, as NAME_texel, with TEXEL defined (shaders/read.glsl); one
# with "// once more for subgroups" likewise as NAME_subgroup, with SUBGROUP; with "// once more for trellises" it and its subgroup
# variant are, as NAME_trellis, with TRELLIS (of which no family is made). "// once per weight format but f32 f16" leaves these out; a kernel with the
# line "// needs cooperative matrices" is left out where the compiler does not know them (TQ_COOPERATIVE_MATRIX is 0 then). A
# workgroup's size is specialisation constant 0, which a kernel declares once more, as a number, for the lengths of arrays: a part of
# gl_WorkGroupSize is no length to some compilers (tests/model/gpu/kernels_spirv_test.cpp).
# Kernels are of #version 440: from 450 on glslang first parses built-in functions for twice as long as most kernels take. Those with fp16
# arithmetic or cooperative matrices are of 460, which has built-in functions for these. The SPIR-V is the same.
set(tq_weight_formats f32 f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 q2_k q3_k q4_k q5_k q6_k iq1_s iq1_m iq2_xxs
  iq2_xs iq2_s iq3_xxs iq3_s iq4_nl iq4_xs tq2_0 mxfp4 nvfp4 q2_0)

# TQ_EMBED: embed.cpp as a program of the machine that builds, which need not be the one that is built for.
if(CMAKE_CROSSCOMPILING)
  find_program(TQ_HOST_CXX NAMES c++ g++ clang++ REQUIRED)
  mark_as_advanced(TQ_HOST_CXX)
  set(TQ_EMBED ${CMAKE_BINARY_DIR}/host/tq_embed)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/host)
  add_custom_command(OUTPUT ${TQ_EMBED} DEPENDS ${CMAKE_CURRENT_LIST_DIR}/embed.cpp DEPFILE ${TQ_EMBED}.d VERBATIM
    COMMENT "tq_embed for the machine that builds"
    COMMAND ${TQ_HOST_CXX} -std=c++20 -O1 -I${CMAKE_SOURCE_DIR} -MD -MF ${TQ_EMBED}.d -MT ${TQ_EMBED} -o ${TQ_EMBED}
      ${CMAKE_CURRENT_LIST_DIR}/embed.cpp)
  add_custom_target(tq_embed DEPENDS ${TQ_EMBED})
else()
  add_executable(tq_embed ${CMAKE_CURRENT_LIST_DIR}/embed.cpp)
  target_include_directories(tq_embed PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_features(tq_embed PRIVATE cxx_std_20)
  set(TQ_EMBED $<TARGET_FILE:tq_embed>)
endif()

# `family`: the C++ of the family STEM + SUFFIX, with nullptr for the formats LEFT_OUT.
function(tq_family stem suffix left_out)
  set(members ${tq_weight_formats})
  list(GET members -1 last)
  list(TRANSFORM members PREPEND "&${stem}_")
  list(TRANSFORM members APPEND "${suffix}")
  foreach(format ${left_out})
    list(TRANSFORM members REPLACE "^&${stem}_${format}${suffix}$" "nullptr")
  endforeach()
  list(JOIN members ", " members)
  set(family "inline constexpr auto ${stem}${suffix} = make_family<${stem}_${last}${suffix}>(${members});\n" PARENT_SCOPE)
endfunction()

# tq_included(FILE DIRECTORY): adds to `included` the files that FILE includes, and those that they include, in the compiler's order: beside
# the file that includes, then in DIRECTORY. A kernel is compiled again only where one of its own has changed.
function(tq_included file directory)
  get_filename_component(beside ${file} DIRECTORY)
  file(STRINGS ${file} lines REGEX "^ *# *include *\"")
  foreach(line ${lines})
    string(REGEX REPLACE "^[^\"]*\"([^\"]*)\".*" "\\1" name "${line}")
    foreach(place ${beside} ${directory})
      cmake_path(ABSOLUTE_PATH name BASE_DIRECTORY ${place} NORMALIZE OUTPUT_VARIABLE path)
      if(EXISTS ${path})
        break()
      endif()
    endforeach()
    if(NOT path IN_LIST included)
      list(APPEND included ${path})
      tq_included(${path} ${directory})
    endif()
  endforeach()
  set(included ${included} PARENT_SCOPE)
endfunction()

function(tq_add_shaders target directory namespace)
  file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${directory}/*.comp)
  set(embed ${CMAKE_SOURCE_DIR}/shaders/embed.cmake)
  set(output_directory ${CMAKE_BINARY_DIR}/${target})
  string(REGEX REPLACE "^tq_" "" all ${target})

  set(text "// Generated from ${directory}/*.comp: every kernel as a constant of namespace tq::${namespace}.\n#pragma once\n")
  set(words "// Generated from ${directory}/*.comp.\n#include \"${all}.gen.h\"\nnamespace tq::${namespace} {\n")
  set(headers)
  set(pointers)
  set(families)
  foreach(kernel ${kernels})
    get_filename_component(stem ${kernel} NAME_WE)
    set(included)
    tq_included(${kernel} ${CMAKE_SOURCE_DIR}/${directory})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${kernel} ${included})
    file(STRINGS ${kernel} cooperative REGEX "^// needs cooperative matrices$")
    set(spirv_val ${SPIRV_VAL})
    if(cooperative)
      if(NOT TQ_COOPERATIVE_MATRIX)
        continue()
      endif()
      set(spirv_val ${COOPERATIVE_SPIRV_VAL})
    endif()
    file(STRINGS ${kernel} per_format REGEX "^// once per weight format( but [a-z0-9_ ]+)?$")
    set(names ${stem})
    if(per_format)
      set(formats ${tq_weight_formats})
      string(REGEX REPLACE "^// once per weight format( but )?" "" left_out "${per_format}")
      separate_arguments(left_out)
      list(REMOVE_ITEM formats ${left_out})
      list(TRANSFORM formats PREPEND ${stem}_ OUTPUT_VARIABLE names)
    endif()
    set(plain_names ${names})
    set(suffixes "_") # "_" for none: a list cannot hold an empty string alone
    foreach(once_more "texels _texel" "subgroups _subgroup" "trellises _trellis")
      separate_arguments(once_more)
      list(GET once_more 0 what)
      list(GET once_more 1 suffix)
      if(suffix STREQUAL "_trellis")
        set(plain_names ${names})
      endif()
      file(STRINGS ${kernel} wanted REGEX "^// once more for ${what}$")
      if(wanted)
        list(TRANSFORM plain_names APPEND ${suffix} OUTPUT_VARIABLE more_names)
        list(APPEND names ${more_names})
        list(APPEND suffixes ${suffix})
      endif()
    endforeach()
    foreach(name ${names})
      string(REGEX REPLACE "^${stem}_?" "" variant ${name})
      add_custom_command(OUTPUT ${output_directory}/${name}.words.h BYPRODUCTS ${output_directory}/${name}.gen.h # may stay as it was
        DEPENDS ${kernel} ${included} ${embed} tq_embed ${TQ_EMBED} VERBATIM
        COMMENT "Shader ${directory}/${stem}.comp ${variant}"
        COMMAND ${CMAKE_COMMAND} -DGLSLANG=${GLSLANG} -DSPIRV_VAL=$<$<BOOL:${spirv_val}>:${spirv_val}>
          -DEMBED=${TQ_EMBED} -DSOURCE_DIR=${CMAKE_SOURCE_DIR} -DDIRECTORY=${directory}
          -DNAMESPACE=${namespace} -DSTEM=${stem} -DVARIANT=${variant} -DNAME=${name}
          -DOUTPUT=${output_directory}/${name} -P ${embed})
      list(APPEND headers ${output_directory}/${name}.words.h)
      string(APPEND text "#include \"${name}.gen.h\"\n")
      string(APPEND words "#include \"${name}.words.h\"\n")
      list(APPEND pointers "&${name}")
    endforeach()
    foreach(suffix ${suffixes})
      string(REGEX REPLACE "^_$" "" suffix "${suffix}")
      if(per_format)
        tq_family(${stem} "${suffix}" "${left_out}")
        string(APPEND families "${family}")
      endif()
    endforeach()
  endforeach()
  list(SORT pointers)
  list(JOIN pointers ",\n    " pointers)
  list(JOIN tq_weight_formats "\", \"" formats)
  string(APPEND text "namespace tq::${namespace} {\n"
    "inline constexpr std::string_view weight_formats[] = {\"${formats}\"};\n${families}"
    "inline constexpr const AnyShader* all[] = {\n    ${pointers}};\n} // namespace tq::${namespace}\n")
  file(CONFIGURE OUTPUT ${output_directory}/${all}.gen.h CONTENT "${text}")

  string(APPEND words "} // namespace tq::${namespace}\n")
  file(CONFIGURE OUTPUT ${output_directory}/${all}.gen.cpp CONTENT "${words}")

  add_custom_target(${target}_compiled DEPENDS ${headers})
  add_library(${target} STATIC ${output_directory}/${all}.gen.cpp)
  add_dependencies(${target} ${target}_compiled)
  target_include_directories(${target} PUBLIC ${output_directory} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_compile_definitions(${target} PUBLIC TQ_COOPERATIVE_MATRIX=$<BOOL:${TQ_COOPERATIVE_MATRIX}>)
endfunction()

tq_add_shaders(tq_shaders shaders shader)
if(BUILD_TESTING)
  tq_add_shaders(tq_test_shaders tests/shaders test_shader)
endif()
