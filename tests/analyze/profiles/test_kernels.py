"""What kernels do, by their names; and their table against plain Python."""

from __future__ import annotations

import pytest

from hpc_utils.analyze.profiles import kernels
from hpc_utils.analyze.profiles.timeline import COMMUNICATION, COMPUTE, MEMORY, UNKNOWN

from .timelines import ALL_REDUCE, timeline

NAMES = {
    "convolution": [
        "volta_fp16_s884cudnn_fp16_256x128_ldg8_relu_f2f_exp_interior_nhwc_tn_v1",
        "volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1",
        "ampere_fp16_s16816cudnn_fp16_128x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1",
        "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckcrs_nhwc_tilesize128x128x16_stage4_warpsize2x2x1_g1_tensor16x8x8_execute_kernel__5x_cudnn",
        "sm90_xmma_dgrad_implicit_gemm_indexed_wo_smem_f16f16_f16f32_f32_nhwckcrs_nhwc_tilesize128x32x32_cudnn",
        "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688wgrad_optimized_tf32_128x128_16x4>(cutlass_tensorop::Params)",
        "void implicit_convolve_sgemm<float, float, 1024, 6, 7, 3, 3, 5, 1, false, true, true>(int, int)",
        "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(cudnn::winograd_nonfused::Params)",
        "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3, float, int>(int)",
        "void cudnn::cnn::im2col4d_kernel<float, long>(cudnn::cnn::im2col4d_params, cudnnConvolutionStruct)",
        "igemm_fwd_gtcx_nhwc_fp32_bx0_ex1_bt64x64x16.kd",
        "miopenSp3AsmConv_v21_1_2_gfx9_fp32_stride1.kd",
        "triton_tem_fused_convolution_3",
    ],
    "GEMM": [
        "ampere_sgemm_128x64_tn",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
        "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_32x1_nn_align2>(Params)",
        "nvjet_tst_256x128_64x4_1x2_h_bz_coopA_NNT",
        "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>(float)",
        "std::enable_if<true, void>::type internal::gemvx::kernel<int, int, float, 7, cublasGemvParamsEx<int> >(int)",
        "void splitKreduce_kernel<float, float, float, float>(cublasSplitKParams<float>, float const*)",
        "Cijk_Ailk_Bljk_HHS_BH_MT128x128x32_MI32x32x8x1_SE_K1.kd",
        "triton_tem_fused_addmm_relu_2",
    ],
    "attention": [
        "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4> >(Params)",
        "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<float, 2> > >(Params)",
        "void cutlass::device_kernel<flash::FlashAttnBwdPostprocessConvertdQ<cute::tuple<cute::C<64> >, float> >(x)",
        "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t>::Params)",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_6_64x128x64_4x1x1_kernel0_0",
        "attn_fwd.kd",
        "triton_tem_fused_flex_attention_0",
    ],
    "normalisation": [
        "void cudnn::bn_fw_tr_1C11_singleread<float, 512, true, 1, 2, 0>(cudnnTensorStruct, float const*)",
        "void cudnn::detail::bn_bw_1C11_kernel_new<float, float, float2, 512, true, 1>(float)",
        "void at::native::batch_norm_collect_statistics_kernel<at::native::InvStd, float, float, float, int>(float)",
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int, float)",
        "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernel<float, float>(long)",
        "MIOpenBatchNormFwdTrainSpatial.kd",
        "triton_red_fused__fused_rms_norm__fused_rms_norm_backward_mul_neg_sum_view_3",
        "triton_per_fused_native_layer_norm_5",
        "triton_red_fused__native_batch_norm_legit_functional_1",
    ],
    "elementwise": [
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int)",
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}>(int)",
        "triton_poi_fused_convolution_relu_5",
        "triton_poi_fused__native_batch_norm_legit_functional_relu_12",
        "void at::native::(anonymous namespace)::fused_dropout_kernel_vec<float, float, unsigned int, 1, 4, bool>(x)",
        "void cudnn::ops::scalePackedTensor_kernel<float, float>(cudnnTensor4dStruct, float*, float)",
        "void op_tensor_kernel<2, float, float>(cudnnTensorStruct)",
    ],
    "reduction": [
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float> > >(x)",
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true>(float*, float const*, int)",
        "triton_per_fused__to_copy_linalg_vector_norm_1",
        "triton_red_fused__log_softmax_mul_nll_loss_forward_sub_view_41",
        "void cunn_ClassNLLCriterion_updateOutput_kernel<float, float>(float*, float*)",
    ],
    "optimizer": [
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::TensorListMetadata<2>, at::native::(anonymous namespace)::BinaryOpScalarFunctor<float, 2, 1, 1>, std::multiplies<float>, float>(x)",
        "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float, float, int>, float>(x)",
        "triton_for_fused_0",
    ],
    "communication": [
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
        "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
        "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)",
        "NCCL_AllReduce",
        "void rcclAllReduceRingLLKernel<1>(x)",
        "mscclKernel_Sum_float_Simple_true(ncclDevComm*, mscclAlgo*)",
        "void transformer_engine::userbuffers_fp16_sum_inplace_gpu_rr_rs_oop<8>(int, int)",
        "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(vllm::RankData*)",
        "void tensorrt_llm::kernels::ar_fusion::allreduce_fusion_kernel_oneshot_lamport<8>()",
        "allToAllV(void*, void*, long*)",
        "oneapi::ccl::allreduce_kernel",
    ],
    "memory": [
        "Memcpy HtoD (Pageable -> Device)",
        "Memset (Device)",
        "CopyDeviceToHost",
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 4, 64, 64>(float*)",
        "void cudnn::ops::nchwToNhwcKernel<float, float, float, true, false, (cudnnKernelDataType_t)0>(int)",
        "void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long, unsigned int, 2, 2, -2, true>(x)",
    ],
    "other": ["XXT_kernel", "", "void at::native::(anonymous namespace)::max_pool_forward_nchw<float, float>(int)"],
}  # fmt: skip


def test_a_kernel_is_known_by_its_name() -> None:
    wrong = {
        name: found for kind, names in NAMES.items() for name in names if (found := kernels.classify(name)) != kind
    }
    assert not wrong and set(NAMES) == set(kernels.KernelClass)
    communicating = [
        name for names in NAMES.values() for name in names if kernels.ops_kinds([name])[0] == COMMUNICATION
    ]
    assert communicating == NAMES["communication"]


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, std::array<char*, 3ul> >(int, at::native::AddFunctor<float>)",
            "at::native::vectorized_elementwise_kernel",
        ),
        ("void nchwToNhwcKernel<float, true, (cudnnKernelDataType_t)0>(int, float const*)", "nchwToNhwcKernel"),
        (
            "std::enable_if<true, void>::type internal::gemvx::kernel<int, 7>(cublasGemvParams<int>)",
            "internal::gemvx::kernel",
        ),
        (
            "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<cute::C<1>, 2> > >(x<1>)",
            "flash::FlashAttnFwdSm90",
        ),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm>(Params)", "cutlass_80_tensorop_s1688gemm"),
        (
            "void unrolled_elementwise_kernel<copy(at::TensorIterator&, bool)::{lambda()#2}::operator()() const::{lambda(float)#1}, int>(int)",
            "unrolled_elementwise_kernel",
        ),
        ("Cijk_Ailk_MT64.kd", "Cijk_Ailk_MT64"),
        ("", ""),
    ],
)
def test_names_are_shortened(name: str, short: str) -> None:
    assert kernels.short(name) == short


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("fbgemm_gpu::split_embedding_codegen_forward_unweighted_kernel<float, float>", "memory"),
        ("fbgemm_gpu::jagged_dense_elementwise_kernel", "elementwise"),
        ("fbgemm_gpu::f8f8bf16_rowwise_gemm", "GEMM"),
        ("bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_biasM_bN_tma_clmp_swiGlu_dynBatch_sm100f", "GEMM"),
    ],
)
def test_the_name_of_a_library_is_no_gemm(name: str, kind: str) -> None:
    assert kernels.classify(name) == kind


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (
            "elementwise",
            "aten::mul aten::add_ aten::div aten::masked_fill_ MulBackward0 aten::zero_ aten::relu torch::distributed::reducer::mul_out",
        ),
        ("reduction", "aten::sum aten::mean MeanBackward1 aten::log_softmax"),
        ("GEMM", "aten::addmm aten::linear AddmmBackward0"),
        ("memory", "aten::index_add_ aten::copy_ aten::embedding"),
        ("optimizer", "optimizer:~aten::mul"),
        ("other", "aten::max_pool2d aten::detach"),
    ],
)
def test_operators_of_a_cpu_have_classes(kind: str, names: str) -> None:
    assert {kernels.classify(name.replace("~", " ")) for name in names.split()} == {kind}


def test_the_table_counts_the_calls_of_each_name_or_kind() -> None:
    gemms = [
        (0, 10, COMPUTE, {"name": "void ampere_sgemm<1>(int)"}),
        (10, 40, COMPUTE, {"name": "void ampere_sgemm<2>(int)"}),
    ]
    copies = [(0, 5, MEMORY), (0, 5, UNKNOWN)]
    timelines = [
        timeline([*gemms, *copies]),
        timeline([(0, 60, COMMUNICATION), (80, 90, *gemms[0][2:])]),
        timeline(None),
    ]
    found = kernels.kernel_table(timelines, "short")
    assert found[["name", "count", "total_ns", "median_ns"]].values.tolist() == [
        [ALL_REDUCE, 1, 60, 60],
        ["ampere_sgemm", 3, 50, 10],
    ]
    assert found.share.tolist() == pytest.approx([60 / 110, 50 / 110])
    assert kernels.kernel_table(timelines, "kind").name.tolist() == ["communication", "GEMM"]
    assert {name: ns for name, ns in kernels.kernel_ns(timelines).items() if ns} == {
        "void ampere_sgemm<1>(int)": 20,
        "void ampere_sgemm<2>(int)": 30,
    }
    assert kernels.kernel_table([timeline(None)]).empty


def test_kinds_are_shares_of_each_profile_and_add_up() -> None:
    lengths = {ALL_REDUCE: 30, "cudnn::bn_fw": 20, "void ampere_sgemm<1>(int)": 10, "triton_poi_fused_add": 40}
    work = [(0, ns, COMMUNICATION if name == ALL_REDUCE else COMPUTE, {"name": name}) for name, ns in lengths.items()]
    tables = {name: kernels.kernel_table([timeline(ops)], "kind") for name, ops in (("a", work), ("nothing", None))}
    (row,) = kernels.kinds(tables).to_dict("records")
    assert row == {
        "configuration": "a", "normalisation": 0.2, "GEMM": 0.1, "convolution": 0.0, "other": 0.4, "communication": 0.3,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("ampere_fp16_s16816gemm_fp16_128x256_ldg8_f2f_stages_64x3_nn", "fp16"),
        ("sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", "bf16"),
        ("sm80_xmma_fprop_implicit_gemm_indexed_f16f16_f16f32_f32_nhwckrsc_nhwc", "fp16"),
        ("sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc", "tf32"),
        ("cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4", "tf32"),
        ("turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_nn", "fp16"),
        ("volta_h884gemm_128x64_ldg8_nn", "fp16"),
        ("sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x128x128", "fp8"),
        ("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN", "bf16"),
        ("nvjet_sm100_hsh_128x128_64x6", "fp16"),
        ("nvjet_qqtst_192x192_128x4_1x2_h_bz_coopB_TNN", "fp8"),
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, cutlass::half_t>, float>", "fp16"),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention)", "fp32"),
        ("volta_sgemm_64x64_nt", "fp32"),
        ("implicit_convolve_sgemm<float, float, 1024, 6, 7, 3>", "fp32"),
        ("cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1", "fp64"),
        ("Cijk_Ailk_Bjlk_HHS_BH_MT128x128x32_MI32x32x8x1_SN", "fp16"),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x256x64", "bf16"),
        ("Cijk_Ailk_Bljk_SB_MT64x64x16_SE_K1", "fp32"),
        ("triton_mm", ""),
        ("['c10::BFloat16', 'float']", "bf16"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "fp32"),
    ],
)
def test_a_name_says_the_precision_of_the_operands(name: str, precision: str) -> None:
    assert kernels.precision(name) == precision
