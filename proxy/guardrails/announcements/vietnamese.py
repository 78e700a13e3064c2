"""Vietnamese: "Để tôi kiểm tra tệp.", "Tôi sẽ tìm ngay:", "Đang tra cứu…"."""

from proxy.guardrails.announcements.cues import Cues, Script

VIETNAMESE = Cues(
    language="vi",
    script=Script.LATIN,
    openings="""
        tôi sẽ, mình sẽ, em sẽ, để tôi, để mình, để em, tôi đang, mình đang, em đang,
        hãy để tôi, cho tôi, cho phép tôi, bây giờ tôi, bây giờ mình, giờ tôi, giờ mình,
        trước tiên tôi, trước hết tôi, tôi cần, tôi phải, vậy tôi, tôi tiếp tục,
        tôi sẽ tiếp tục, tôi chuẩn bị, tôi xin phép, tôi xin, giờ em, em xin phép, tôi, mình,
        em, xin phép""",
    fillers="""
        sẽ, bắt đầu, đi, thử, ngay, ngay bây giờ, nhanh, tiến hành, trước, phép, tiếp tục,
        cùng, vào, qua, cũng, lại""",
    acts="""
        kiểm tra, xem, xem lại, xem thử, xem qua, xem xét, nhìn, tra, tra cứu, tìm, tìm kiếm,
        tìm hiểu, tìm thử, truy vấn, lấy, tải, tải xuống, tải lên, mở, đọc, phân tích,
        khảo sát, thử, thử lại, chạy, chạy lại, thực hiện, thực thi, khởi động, khởi động lại,
        dừng, tắt, bật, cài, cài đặt, cấu hình, cập nhật, sửa, chỉnh sửa, chỉnh, thay đổi,
        đổi, xóa, xoá, tạo, thêm, viết, ghi, lưu, gửi, đặt, hủy, huỷ, tính, tính toán, gọi,
        dùng, sử dụng, so sánh, liệt kê, đếm, triển khai, áp dụng, biên dịch, xác minh,
        xác nhận lại, dò, quét, rà soát, kết nối, hẹn, phát, di chuyển, sao chép, đẩy, commit,
        xử lý, bắt đầu ngay, làm ngay, tiến hành, đi kiểm tra, dời, bấm, nhấn, đăng nhập,
        đóng, khóa, khoá, mở khóa, chuyển, nhập dữ liệu, xuất dữ liệu, sắp xếp, lọc, đồng bộ,
        đánh dấu, đo, điền, chọn mục, thông báo cho, trích xuất, tải lại, thu thập,
        khoanh vùng, gộp, thay thế, viết lại, tiếp tục kiểm tra, tạm dừng, hoãn, lên lịch,
        khôi phục, sao lưu, chẩn đoán, tìm nguyên nhân, tăng âm lượng, giảm""",
    forms="để xem trong, để xem có, để xem nó, để xem file, để xem tệp",
    starts="""
        đang kiểm tra, đang xem, đang tra cứu, đang tra, đang tìm, đang tìm kiếm,
        đang truy vấn, đang lấy, đang tải, đang mở, đang đọc, đang phân tích, đang thử,
        đang chạy, đang thực hiện, đang khởi động, đang tắt, đang bật, đang cài,
        đang cập nhật, đang sửa, đang xóa, đang tạo, đang thêm, đang gửi, đang đặt, đang tính,
        đang xử lý, đang gọi, đang lưu, bắt đầu kiểm tra, bắt đầu tìm, tiến hành kiểm tra,
        tiến hành tìm, tiến hành chạy, giờ xem, giờ kiểm tra, xem thử, kiểm tra ngay""",
    trailing="tìm kiếm, kiểm tra, tra cứu, tải",
    leads="""
        vâng, dạ, được, được rồi, ok, tốt, rồi, đã hiểu, hiểu rồi, chắc chắn rồi, tất nhiên,
        cảm ơn bạn, bây giờ, giờ, hệ thống, trước tiên""",
    wholes="""
        chờ một chút, chờ chút, đợi một chút, đợi chút, vui lòng chờ, vui lòng chờ một chút,
        vui lòng đợi, vui lòng đợi một chút, xin chờ một chút, xin vui lòng chờ, một chút,
        chờ tôi một chút, chờ mình một chút, bạn chờ một chút, bạn chờ một chút nhé,
        chờ một chút nhé, bạn đợi chút nhé, đợi chút nhé, chờ chút nhé, tôi làm ngay,
        tôi làm ngay đây, mình làm ngay, mình làm ngay đây, một giây, để tôi xem, để tôi thử,
        để mình xem, làm ngay đây, bạn đợi mình chút nhé, xin đợi một chút, chờ xíu, đợi xíu,
        chờ xíu nhé, chờ mình xíu, để tôi kiểm tra, để mình kiểm tra, có ngay, có ngay đây,
        dạ có ngay""",
    particles="nhé, ạ, nha, đây, ngay, liền, luôn, thêm chút",
    bars="""
        nếu, khi nào, lúc nào, sau khi, trước khi, ngay khi, mỗi, mỗi khi, luôn, luôn luôn,
        thường, thường xuyên, hàng ngày, hằng ngày, không bao giờ, chẳng, đừng, ngày mai,
        sau này, lần sau, từ nay, tối nay, tuần sau, ví dụ, chẳng hạn, giả sử, hôm qua,
        trước đây, đôi khi, giải thích, tóm tắt, nhé bạn, theo yêu cầu, câu trả lời, =,
        thứ hai hằng, khi bạn, khi có, nếu bạn, có thể giúp, tôi có thể, không cần, đã xong,
        là một, là nút, thêm rằng, lời chúc, việc làm, anh ấy, cô ấy, viết rằng, từ này,
        hàng phút""",
    requests="""
        cho tôi biết, cho mình biết, cho em biết, hãy cho, cho biết, hãy gửi, hãy nói,
        hãy xác nhận, vui lòng cho, vui lòng cung cấp, vui lòng gửi, vui lòng xác nhận,
        vui lòng nhập, bạn có muốn, bạn muốn, bạn có thể cho, được không, gửi tôi,
        gửi cho tôi, cứ nói, cứ nhắn, bạn đồng ý, tôi cần bạn, mình cần bạn""",
    bars_before="mà, rằng, vì, bảo, hoặc, tại sao, anh nói, cô nói, nói rằng, viết rằng",
    bars_beside="""
        không, chưa, chẳng, đừng, rằng, mà, của, là, với, khi, hoặc, đã, vừa, từng, có, mới""",
    bars_after="""
        bạn là, lời, ví dụ, từ này, là, như, thấy, kể, * là, * * là, đây là, rằng, việc, từ,
        tin""",
    finites="là, cần, mất, giúp, sẽ",
    clauses="để, xem, có",
    afterthoughts="""
        việc này có thể, quá trình này, sẽ mất, có thể mất, tôi sẽ báo, mình sẽ báo, rồi báo,
        sau đó tôi sẽ báo, sau đó báo, cảm ơn bạn đã chờ, cảm ơn bạn đã kiên nhẫn,
        vui lòng chờ, vui lòng đợi, xin chờ, chờ một chút""",
)
