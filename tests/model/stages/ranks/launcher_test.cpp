// The number of processes that a launcher has started, by the variables that it sets.
#include "base/environment.h"
#include "model/stages/ranks/mpi_transport.h"
#include <doctest/doctest.h>
#include <map>
#include <string>

using namespace tq;

namespace {

// An empty variable counts as one that is not set.
void set_variables(const std::map<std::string, std::string>& variables) {
    for (const char* name : {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_SIZE", "PMI_RANK", "PMIX_RANK",
                             "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}) {
        const auto set = variables.find(name);
        set_environment_variable(name, set == variables.end() ? "" : set->second);
    }
}

uint32_t launched(const std::map<std::string, std::string>& variables) {
    set_variables(variables);
    return launched_processes();
}

uint32_t number(const std::map<std::string, std::string>& variables) {
    set_variables(variables);
    return launched_rank();
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

TEST_CASE("the number of a process is that of the launcher that counts") {
    CHECK(number({}) == 0);
    CHECK(number({{"OMPI_COMM_WORLD_SIZE", "3"}, {"OMPI_COMM_WORLD_RANK", "2"}, {"PMIX_RANK", "0"}}) == 2);
    CHECK(number({{"PMI_SIZE", "4"}, {"PMI_RANK", "3"}}) == 3);
    CHECK(number({{"PMIX_RANK", "1"}, {"SLURM_STEP_NUM_TASKS", "3"}}) == 1);
    for (const char* wrong : {"-1", "x", ""}) CHECK(number({{"PMI_SIZE", "4"}, {"PMI_RANK", wrong}}) == 0);
}
