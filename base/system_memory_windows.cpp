#include "base/system_memory.h"
#include <windows.h>

namespace tq {

uint64_t physical_memory_bytes() {
    MEMORYSTATUSEX status{};
    status.dwLength = sizeof status;
    return GlobalMemoryStatusEx(&status) ? status.ullTotalPhys : UINT64_MAX;
}

void return_freed_memory() {}

} // namespace tq
