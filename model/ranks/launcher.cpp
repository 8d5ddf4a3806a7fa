#include "base/environment.h"
#include "model/ranks/mpi_transport.h"
#include <algorithm>
#include <charconv>

namespace tq {

// By the variables of Open MPI, of MPICH's and Intel's process managers, and of Slurm's with PMI2 or PMIx.
uint32_t launched_processes() {
    uint32_t most = 1;
    for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_NUM_TASKS"}) {
        const std::string text = environment_variable(name).value_or("");
        uint32_t number = 1;
        std::from_chars(text.data(), text.data() + text.size(), number);
        most = std::max(most, number);
    }
    return most;
}

} // namespace tq
