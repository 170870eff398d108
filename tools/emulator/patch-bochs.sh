#!/bin/sh
# patch-bochs.sh FOLDER: gives the sources of Bochs 3.1 (783b58fd6d9b; the folder that has cpu/ in it) what Linux and AMX need,
# before the first make:
# - extended feature disable (Intel's manual, volume 1, 13.14), without which Linux leaves tile data alone;
# - XSAVE of tiles: all rows, the configuration's numbers in their places, in use if they are, sizes with alignment;
# - products of signed bytes that are signed (TDPBSSD, TDPBSUD, TDPBUSD);
# - code that is overwritten ends the trace that runs it (Linux still hangs now and then: docs/performance.md);
# - CPUID of a Skylake-X with VNNI and AMX (Linux does not boot on the newer models).
set -eu
export LC_ALL=C
cd "$1/cpu"

# edit FILE SCRIPT: sed, which must change something.
edit() {
  sed -e "$2" "$1" >edited
  if cmp -s edited "$1"; then
    echo "patch-bochs: $1 is not as in that version: $2" >&2
    exit 1
  fi
  cat edited >"$1"
  rm edited
}

edit cpu.h 's/^  Bit64u ia32_xss;/&\n  Bit64u ia32_xfd, ia32_xfd_err;/'
edit cpu.h 's/^  BX_SMF Bit32u get_ia32_xss_allow_mask(void);/&\n  BX_SMF void check_xfd(Bit32u features);/'
edit init.cc 's/^  BX_CPU_THIS_PTR msr.ia32_xss = 0;/&\n  BX_CPU_THIS_PTR msr.ia32_xfd = BX_CPU_THIS_PTR msr.ia32_xfd_err = 0;/'
for register in XFD XFD_ERROR; do
  field=$(echo "ia32_$register" | sed 's/ERROR/err/; s/XFD/xfd/')
  edit msr.cc "s/^  msr_desc\[BX_MSR_XSS\] = .*/&\n  msr_desc[BX_MSR_IA32_$register] = new MSR_Descriptor(\"IA32_$register\", BX_ISA_AMX, ~Bit64u(BX_XCR0_XTILEDATA_MASK));/"
  edit msr.cc "s/^    case BX_MSR_XSS:\$/    case BX_MSR_IA32_$register:\n      val64 = BX_CPU_THIS_PTR msr.$field;\n      break;\n&/"
  edit msr.cc "s/^    case BX_MSR_XSS: .*/    case BX_MSR_IA32_$register:\n      BX_CPU_THIS_PTR msr.$field = val_64;\n      break;\n&/"
done
edit cpuid.cc '/support for XFD$/,/ebx = 0/s/^    leaf->ebx = 0;/    if (is_cpu_extension_supported(BX_ISA_AMX)) leaf->eax |= 1 << 4;\n&/'
edit crregs.cc '/XTILEDATA_BIT\].attr/s/$/\n    xsave_restore[xcr0_t::BX_XCR0_XTILEDATA_BIT].attr |= BX_XSAVE_XFD_SUPPORT;/'
edit avx/amx.cc '/::\(TILEZERO_Tnnn\|check_tile\|check_tiles\)(/,/^{/s/^{/&\n  check_xfd(BX_XCR0_XTILEDATA_MASK);/'
edit xsave.cc 's/^  return xinuse;/  xinuse \&= ~Bit32u(BX_CPU_THIS_PTR msr.ia32_xfd);\n&/'
edit xsave.cc 's/^  \/\/ first handle initialization.*/  check_xfd(requested_feature_bitmap \& restore_mask);\n\n&/'
edit xsave.cc 's/^Bit32u BX_CPU_C::get_xinuse_vector(.*/void BX_CPU_C::check_xfd(Bit32u features)\n{\n  Bit64u disabled = BX_CPU_THIS_PTR msr.ia32_xfd \& features;\n  if (! disabled) return;\n  BX_CPU_THIS_PTR msr.ia32_xfd_err = disabled;\n  exception(BX_NM_EXCEPTION, 0);\n}\n\n&/'

edit cpuid.cc '/required_by_xsaves_features(Bit32u features)$/,/^}/s/^    if (features & (1 << n))/    if ((features \& (1 << n)) \&\& (xsave_restore[n].attr \& BX_XSAVE_ALIGN64)) max_size = (max_size + 63) \& ~63;\n&/'
edit xsave.cc '/vmm16u(8+n)/s/\.rows/.bytes_per_row/; /vmmubyte(48+n)/s/\.bytes_per_row/.rows/'
edit xsave.cc 's/row < BX_TILE_REGISTERS/row < BX_TILE_MAX_ROWS/'
edit xsave.cc 's/tile_use_tracker == 0/tile_use_tracker != 0/'

edit avx/amx.cc '/ DPBD\(SS\|SU\)(/,/^}/s/Bit32s(\(xbyte\[.\]\))/Bit32s(Bit8s(\1))/'
edit avx/amx.cc '/ DPBD\(SS\|US\)(/,/^}/s/Bit32s(\(ybyte\[.\]\))/Bit32s(Bit8s(\1))/'

edit icache.cc '/PPFOf(pAddr))$/d'

edit cpudb/intel/corei7_skylake-x.cc '/leaf_7_ebx(/,/break/{
s/ecx = 0/ecx = get_std_cpuid_leaf_7_ecx() \& (1 << 11)/
s/edx = 0/edx = get_std_cpuid_leaf_7_edx(0) \& (1 << 22 | 1 << 24 | 1 << 25)/
}'
