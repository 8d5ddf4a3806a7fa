#include "base/environment.h"
#include "model/ranks/mpi_transport.h"
#include <algorithm>
#include <charconv>

namespace tq {

// By the variables of Open MPI, and of process managers with PMI: MPICH's, Intel's, and Slurm's.
uint32_t launched_processes() {
    uint32_t most = 1;
    for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
        const std::string text = environment_variable(name).value_or("");
        uint32_t number = 1;
        std::from_chars(text.data(), text.data() + text.size(), number);
        most = std::max(most, number);
    }
    return most;
}

} // namespace tq
