#include "base/system_memory.h"
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace tq {

uint64_t physical_memory_bytes() {
    const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    return pages > 0 && page_bytes > 0 ? uint64_t(pages) * uint64_t(page_bytes) : UINT64_MAX;
}

void return_freed_memory() {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

} // namespace tq
