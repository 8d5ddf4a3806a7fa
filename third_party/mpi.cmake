# MPI (Open MPI or MPICH, BSD licences), over which the ranks of a job share a model: the system's own, which Debian has in
# libopenmpi-dev and libmpich-dev. -DMPI_C_COMPILER=mpicc.mpich with -DMPIEXEC_EXECUTABLE=/usr/bin/mpiexec.mpich chooses one of several.
# Packages are built without it, since a program runs with the MPI that it was built with.
option(TQ_MPI "Run a model on several machines with the system's MPI" ON)
set(TQ_MPI_DIRECTORY no_mpi)
if(TQ_MPI AND UNIX AND NOT CMAKE_CROSSCOMPILING AND NOT TQ_PORTABLE)
  find_package(MPI 3 QUIET COMPONENTS C)
  if(MPI_C_FOUND)
    set(TQ_MPI_DIRECTORY mpi)
    add_library(tq_mpi INTERFACE)
    target_include_directories(tq_mpi SYSTEM INTERFACE ${MPI_C_INCLUDE_DIRS})
    target_compile_definitions(tq_mpi INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
    target_link_libraries(tq_mpi INTERFACE ${MPI_C_LIBRARIES})
    message(STATUS "MPI: ${MPI_C_VERSION}, ${MPI_C_LIBRARIES}")
    tq_depends(mpi linked BSD-3-Clause "${MPI_C_VERSION}")
  else()
    message(STATUS "MPI: none (Debian has it in libopenmpi-dev and libmpich-dev)")
  endif()
endif()
