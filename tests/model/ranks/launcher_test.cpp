// How many processes a launcher has started, by the variables that it sets.
#include "base/environment.h"
#include "model/ranks/mpi_transport.h"
#include <doctest/doctest.h>
#include <map>
#include <string>

using namespace tq;

namespace {

// An empty variable counts as one that is not set.
uint32_t launched(const std::map<std::string, std::string>& variables) {
    for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}) {
        const auto set = variables.find(name);
        set_environment_variable(name, set == variables.end() ? "" : set->second);
    }
    return launched_processes();
}

} // namespace

TEST_CASE("processes of Open MPI's and MPICH's launchers") {
    CHECK(launched({}) == 1);
    CHECK(launched({{"OMPI_COMM_WORLD_SIZE", "3"}}) == 3);
    CHECK(launched({{"OMPI_COMM_WORLD_SIZE", "1"}}) == 1);
    CHECK(launched({{"PMI_SIZE", "4"}}) == 4);
    for (const char* wrong : {"0", "-3", "x", "3x", "99999999999"}) CHECK(launched({{"PMI_SIZE", wrong}}) == 1);
}

TEST_CASE("processes of srun --mpi=pmix") {
    CHECK(launched({{"PMIX_RANK", "0"}, {"SLURM_STEP_NUM_TASKS", "3"}, {"SLURM_NTASKS", "3"}}) == 3);
    CHECK(launched({{"PMIX_RANK", "2"}, {"SLURM_NTASKS", "3"}}) == 3);
    CHECK(launched({{"PMIX_RANK", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_NTASKS", "3"}}) == 1);
    CHECK(launched({{"PMIX_RANK", "0"}}) == 1);
}

TEST_CASE("processes of others in a job of Slurm's") {
    CHECK(launched({{"SLURM_STEP_NUM_TASKS", "3"}, {"SLURM_NTASKS", "3"}}) == 1); // in a job's script, or srun without MPI
    CHECK(launched({{"OMPI_COMM_WORLD_SIZE", "1"}, {"PMIX_RANK", "0"}, {"SLURM_NTASKS", "3"}}) == 1);
    CHECK(launched({{"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_RANK", "0"}, {"SLURM_STEP_NUM_TASKS", "8"}}) == 2);
}
