// A file of cache types (--kv FILE.kv.json): what is read is written, and is the same when it is read again.
#include "model/files/kv_file.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    tq::fuzz::write("types.kv.json", tq::fuzz::text(data, size));
    return tq::fuzz::run([] {
        const auto path = tq::fuzz::directory() / "types.kv.json";
        const tq::KvOptions kv = tq::read_kv_file(path);
        const std::string text = tq::kv_file_text(kv, kv.layer_count, "again");
        tq::fuzz::write("types.kv.json", text);
        if (tq::kv_file_text(tq::read_kv_file(path), kv.layer_count, "again") != text) std::abort();
    });
}
