// The characters of TeX's names in formulas, and of its fonts.

// Names and their characters. Of equal characters the first kind is that of the bare character.
const kinds = {
    letter: `alpha α beta β gamma γ delta δ epsilon ϵ varepsilon ε zeta ζ eta η theta θ vartheta ϑ iota ι kappa κ lambda λ mu μ nu ν xi ξ pi π varpi ϖ
        rho ρ varrho ϱ sigma σ varsigma ς tau τ upsilon υ phi ϕ varphi φ chi χ psi ψ omega ω Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π Sigma Σ
        Upsilon Υ Phi Φ Psi Ψ Omega Ω infty ∞ partial ∂ nabla ∇ forall ∀ exists ∃ nexists ∄ emptyset ∅ varnothing ∅ hbar ℏ ell ℓ Re ℜ Im ℑ wp ℘
        aleph ℵ beth ℶ imath ı jmath ȷ top ⊤ bot ⊥ angle ∠ triangle △ square □ Box □ blacksquare ■ degree ° dots … ldots … dotsc … cdots ⋯ dotsb ⋯
        vdots ⋮ ddots ⋱ neg ¬ lnot ¬ $ $ % % # # & & _ _`,
    operator: `times × cdot ⋅ div ÷ pm ± mp ∓ ast ∗ star ⋆ circ ∘ bullet ∙ oplus ⊕ ominus ⊖ otimes ⊗ oslash ⊘ odot ⊙ cap ∩ cup ∪ sqcap ⊓ sqcup ⊔
        uplus ⊎ wedge ∧ land ∧ vee ∨ lor ∨ setminus ∖ smallsetminus ∖ dagger † amalg ⨿ lt < gt > le ≤ leq ≤ leqslant ⩽ ge ≥ geq ≥ geqslant ⩾ ne ≠ neq ≠
        ll ≪ gg ≫ equiv ≡ approx ≈ approxeq ≊ sim ∼ simeq ≃ cong ≅ propto ∝ doteq ≐ triangleq ≜ coloneqq ≔ prec ≺ succ ≻ preceq ⪯ succeq ⪰ in ∈
        notin ∉ ni ∋ subset ⊂ supset ⊃ subseteq ⊆ supseteq ⊇ subsetneq ⊊ supsetneq ⊋ sqsubseteq ⊑ sqsupseteq ⊒ nsubseteq ⊈ mid ∣ nmid ∤ parallel ∥
        nparallel ∦ perp ⟂ vdash ⊢ models ⊨ vDash ⊨ asymp ≍ lesssim ≲ gtrsim ≳ therefore ∴ because ∵ to → rightarrow → leftarrow ← gets ←
        leftrightarrow ↔ Rightarrow ⇒ Leftarrow ⇐ Leftrightarrow ⇔ longrightarrow ⟶ longleftarrow ⟵ longleftrightarrow ⟷ Longrightarrow ⟹
        Longleftarrow ⟸ Longleftrightarrow ⟺ implies ⟹ impliedby ⟸ iff ⟺ mapsto ↦ longmapsto ⟼ hookrightarrow ↪ hookleftarrow ↩ rightleftharpoons ⇌
        rightharpoonup ⇀ leadsto ⇝ nearrow ↗ searrow ↘ swarrow ↙ nwarrow ↖ prime ′ colon :`,
    large: 'sum ∑ prod ∏ coprod ∐ bigcup ⋃ bigcap ⋂ bigvee ⋁ bigwedge ⋀ bigoplus ⨁ bigotimes ⨂ bigsqcup ⨆ biguplus ⨄',
    integral: 'int ∫ iint ∬ iiint ∭ oint ∮ oiint ∯',
    bar: 'vert | | ‖ Vert ‖',
    open: 'lparen ( lbrack [ { { lbrace { langle ⟨ lfloor ⌊ lceil ⌈ lvert | lVert ‖',
    close: 'rparen ) rbrack ] } } rbrace } rangle ⟩ rfloor ⌋ rceil ⌉ rvert | rVert ‖',
    vertical: 'uparrow ↑ downarrow ↓ updownarrow ↕ Uparrow ⇑ Downarrow ⇓ Updownarrow ⇕',
    tight: 'backslash \\',
};
const marks = { '+': '+', '=': '=', ',': ',', ';': ';', '-': '−', '*': '∗' };
export const symbols = new Map(Object.entries(marks).map(([mark, text]) => [mark, { kind: 'operator', text }]));
for (const text of '/.?') symbols.set(text, { kind: 'tight', text });
symbols.set('!', { kind: 'after', text: '!' });
for (const [kind, table] of Object.entries(kinds)) {
    const words = table.split(/\s+/);
    for (let at = 0; at < words.length; at += 2) {
        const symbol = { kind, text: words[at + 1] };
        symbols.set(`\\${words[at]}`, symbol);
        if (!/[\\{}$%#&_]/.test(symbol.text) && !symbols.has(symbol.text)) symbols.set(symbol.text, symbol);
    }
}

// Where a font's capitals, small letters, digits and Greek letters begin, and the letters that stand elsewhere.
const fonts = {
    rm: [],
    it: [],
    bf: [0x1d400, 0x1d41a, 0x1d7ce],
    bm: [0x1d468, 0x1d482, 0x1d7ce, 0x1d6a8, 0x1d736],
    bb: [0x1d538, 0x1d552, 0x1d7d8],
    cal: [0x1d49c, 0x1d4b6],
    frak: [0x1d504, 0x1d51e],
    sf: [0x1d5a0, 0x1d5ba, 0x1d7e2],
    tt: [0x1d670, 0x1d68a, 0x1d7f6],
};
const elsewhere = { bb: 'CℂHℍNℕPℙQℚRℝZℤ', cal: 'BℬEℰFℱHℋIℐLℒMℳRℛeℯgℊoℴ', frak: 'CℭHℌIℑRℜZℨ' };
const ranges = ['AZ', 'az', '09', 'ΑΩ', 'αω'];

export function inFont(text, font) {
    const other = elsewhere[font]?.indexOf(text) ?? -1;
    if (other >= 0 && other % 2 === 0) return elsewhere[font][other + 1];
    const range = ranges.findIndex(([first, last]) => text >= first && text <= last);
    const start = fonts[font]?.[range];
    return start && text.length === 1 ? String.fromCodePoint(start + text.charCodeAt(0) - ranges[range].charCodeAt(0)) : text;
}
