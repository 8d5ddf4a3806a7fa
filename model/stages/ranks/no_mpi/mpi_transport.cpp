#include "model/stages/ranks/mpi_transport.h"

namespace tq {

std::string mpi_version() { return "none"; }

std::unique_ptr<Transport> open_mpi() {
    fail("this build has no MPI, as it was missing when it was configured (Debian has it in libopenmpi-dev and libmpich-dev): "
         "configure it again with that");
}

} // namespace tq
