#include "base/environment.h"
#include "base/text.h"
#include "model/stages/ranks/mpi_transport.h"
#include <algorithm>

namespace tq {
namespace {

// Returns the number in a variable; 0 if it is not set, or has none.
uint32_t number_in(const char* name) {
    uint32_t number = 0;
    parse_number(environment_variable(name).value_or(""), number);
    return number;
}

} // namespace

// Reads the variables of Open MPI and of process managers with PMI (MPICH's, Intel's, Slurm's). With PMIx (srun --mpi=pmix) the
// rank comes from PMIx, and the number of the step's processes from Slurm. Open MPI's own mpirun uses PMIx, too, and in a job of
// Slurm's it leaves Slurm's numbers, which are others: of the job, or of its daemons.
uint32_t launched_processes() {
    const uint32_t counted = std::max(number_in("OMPI_COMM_WORLD_SIZE"), number_in("PMI_SIZE"));
    if (counted > 0) return counted;
    if (environment_variable("PMIX_RANK").value_or("").empty()) return 1;
    const uint32_t step = number_in("SLURM_STEP_NUM_TASKS");
    return std::max(step > 0 ? step : number_in("SLURM_NTASKS"), 1u);
}

uint32_t launched_rank() {
    if (number_in("OMPI_COMM_WORLD_SIZE") > 0) return number_in("OMPI_COMM_WORLD_RANK");
    return number_in(number_in("PMI_SIZE") > 0 ? "PMI_RANK" : "PMIX_RANK");
}

} // namespace tq
