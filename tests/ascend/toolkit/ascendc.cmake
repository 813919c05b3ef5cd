# Stands in for the file of CANN's toolkit: defines what ops/ascendc/CMakeLists.txt calls, and sets
# for the including project what CANN's sets.
set(CMAKE_SKIP_RPATH TRUE)
set(TOOLKIT ${CMAKE_CURRENT_LIST_DIR})
set(OPS ${CMAKE_CURRENT_SOURCE_DIR}/..)

# A library with a launcher for each kernel in the sources.
function(ascendc_library target type)
  set(made ${CMAKE_BINARY_DIR}/include/${target})
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE sources)
  execute_process(
    COMMAND python3 ${TOOLKIT}/launchers.py ${CMAKE_CXX_COMPILER} ${OPS}/emulator/include ${made} ${sources}
    RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "launchers.py failed: ${failed}")
  endif()
  add_library(${target} ${type} ${made}/launchers.cpp)
  target_include_directories(${target}
    PRIVATE ${TOOLKIT} ${OPS}/ascendc ${OPS}/emulator/include
    INTERFACE ${made})
  target_include_directories(${target} SYSTEM PRIVATE ${TORCH_NPU_PATH}/include)
  target_link_libraries(${target} PRIVATE dl)
endfunction()
