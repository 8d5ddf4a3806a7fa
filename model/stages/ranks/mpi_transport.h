// Ranks of a job that MPI started: the processes of mpirun or srun. Open MPI and MPICH; mpi/ alone knows them.
#pragma once
#include "model/stages/ranks/transport.h"
#include <memory>

namespace tq {

// "Open MPI v4.1.4", or "none" if this was built without it.
std::string mpi_version();

// The number of processes that a launcher of MPI's (mpirun, srun --mpi) has started this one with; 1 without one.
uint32_t launched_processes();
// The number of this one among them, from 0 on.
uint32_t launched_rank();

// Joins the job; once in a process. The job is left when the result is destroyed, for which ranks wait for each other. Throws
// Error if this was built without MPI.
std::unique_ptr<Transport> open_mpi();

} // namespace tq
