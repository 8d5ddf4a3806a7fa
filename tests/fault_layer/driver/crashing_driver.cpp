// A Vulkan driver that crashes the process as soon as it is loaded, or with TQ_FAULT_DRIVER=hang never lets it go on.
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

__attribute__((constructor)) static void begin() {
    const char* how = std::getenv("TQ_FAULT_DRIVER");
    while (how != nullptr && std::strcmp(how, "hang") == 0) ::sleep(3600);
    std::raise(SIGSEGV);
}
