// A grammar in GBNF, then after a line with a single "-" a text that is matched against it: whatever happens, in bounded memory
// and time.
#include "model/text/grammar/gbnf.h"
#include "model/text/grammar/state_table.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view input = tq::fuzz::text(data, size);
    const size_t cut = std::min(input.find("\n-\n"), input.size());
    return tq::fuzz::run([&] {
        const tq::grammar::Grammar grammar(tq::grammar::parse_gbnf(input.substr(0, cut)));
        tq::grammar::StateTable table(grammar);
        tq::grammar::StateTable::State state = table.start();
        for (const char byte : input.substr(std::min(cut + 3, input.size())).substr(0, 200)) {
            for (const auto& part : table.parts(state)) table.next(part.state, uint8_t(byte));
            state = table.next(state, uint8_t(byte));
        }
        table.forget({&state, 1});
    });
}
