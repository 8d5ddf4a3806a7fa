// A measurement's log: one of the same measurement is continued, and once more after a part was added.
#include "model/files/formats/json.h"
#include "tests/fuzz/fuzz_target.h"
#include "tools/check/quality/run_log.h"
#include <nlohmann/json.hpp>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view text = tq::fuzz::text(data, size);
    tq::fuzz::write("run.jsonl", text);
    return tq::fuzz::run([&] {
        const auto path = tq::fuzz::directory() / "run.jsonl";
        const nlohmann::json what = tq::read_json(text.substr(0, std::min(text.find('\n'), text.size())), "the first line");
        if (!what.is_object()) return; // as every measurement's description is
        size_t parts = 0;
        {
            tq::quality::RunLog log(path, what);
            parts = log.parts().size();
            log.add({{"chunk", 1}});
        }
        const tq::quality::RunLog again(path, what);
        if (again.parts().size() != parts + 1) std::abort();
    });
}
