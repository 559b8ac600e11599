# nibble_layer(NAME [INTERNAL] [DEPS layer...] [LIBS target...] [SOURCES file...])
# One target per folder of src/, header-only without SOURCES; DEPS is the only place where a dependency between layers is allowed to
# appear. LIBS are libraries outside nibble that no header of the layer exposes. An INTERNAL layer is not installed.
function(nibble_layer name)
  cmake_parse_arguments(ARG "INTERNAL" "" "DEPS;LIBS;SOURCES" ${ARGN})
  set(target nibble_${name})
  if(NOT ARG_SOURCES)
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  else()
    add_library(${target} STATIC ${ARG_SOURCES})
    set(scope PUBLIC)
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:nibble_flags> ${ARG_LIBS})
    if(NIBBLE_CUDA)
      set_target_properties(${target} PROPERTIES CUDA_RUNTIME_LIBRARY Static)
    endif()
  endif()
  target_compile_features(${target} ${scope} cxx_std_20)
  target_include_directories(${target} ${scope} $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
                             $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                             $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>)
  list(TRANSFORM ARG_DEPS PREPEND nibble_)
  target_link_libraries(${target} ${scope} ${ARG_DEPS})
  if(NOT ARG_INTERNAL)
    set_property(GLOBAL APPEND PROPERTY NIBBLE_TARGETS ${target})
  endif()
endfunction()

# nibble_public_headers(LAYER file...): headers of include/nibble that this layer implements.
function(nibble_public_headers name)
  list(TRANSFORM ARGN PREPEND ${PROJECT_SOURCE_DIR}/include/nibble/ OUTPUT_VARIABLE files)
  target_sources(nibble_${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}/include
                 FILES ${files})
endfunction()

# nibble_kernels(FAMILY file...): the CUDA instances of a kernel family, each file named as the instance that it defines.
# Writes kernels/<family>_instances.inc, one NIBBLE_INSTANCE(name) a line, for those that NIBBLE_KERNELS lets through; a
# build without CUDA gets an empty list.
function(nibble_kernels family)
  set(list "")
  if(NIBBLE_CUDA)
    foreach(file IN LISTS ARGN)
      get_filename_component(instance ${file} NAME_WE)
      if(instance MATCHES "${NIBBLE_KERNELS}")
        target_sources(nibble_kernels PRIVATE ${file})
        string(APPEND list "NIBBLE_INSTANCE(${instance})\n")
      endif()
    endforeach()
  endif()
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/include/kernels/${family}_instances.inc
       CONTENT "${list}" @ONLY)
endfunction()
